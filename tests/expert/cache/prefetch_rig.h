// A provider whose predictor guesses what a test says, over reads that a test completes.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/expert/provider_rig.h"

namespace moed {

inline Guess Likely(LayerId layer, int32_t expert) { return {{layer, expert}, 0.5f}; }
inline Guess Sure(LayerId layer, int32_t expert) { return {{layer, expert}, 0.9f}; }

class Prefetch : public testing::Test {
 protected:
  std::unique_ptr<CachingProvider> Make(int records, std::map<LayerId, std::vector<Guess>> script, ReadBackend& reads) {
    RigParts parts;
    parts.predictor = std::make_unique<ScriptedPredictor>(std::move(script));
    return MakeProvider(reads, Records(records), std::move(parts));
  }

  const std::shared_ptr<const RandomAccessFile> store_ = MakeMemoryFile("experts.moed", ExpertStore::Get().contents());
  ManualReadBackend reads_{8, store_};
  ManualReadBackend single_{1, store_};  // one read in flight, the others queue
};

}  // namespace moed
