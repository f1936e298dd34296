// The real engine over a tiny checkpoint: one request at a time on the caller's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/step_engine.h"
#include "tests/engine/observed_answer.h"
#include "tests/model/long_sequences.h"

namespace moed {

struct ModelServing {
  // `clock` outlives it.
  ModelServing(const std::string& checkpoint, const Tokenizer& tokenizer, const Clock& clock, const ModelSetup& setup,
               const StepEngineOptions& options)
      : store(PackedStore(checkpoint, FormatId::kQ8)), model(store, setup), provider(store) {
    auto made = StepEngine::Create(options, {model.model(), provider, model.kv(), tokenizer, clock});
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }

  std::shared_ptr<ObservedAnswer> Ask(EngineRequest request) {
    auto answer = std::make_shared<ObservedAnswer>();
    auto id = engine->Submit(std::move(request), answer);
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) last = *id;
    return answer;
  }
  std::shared_ptr<ObservedAnswer> Serve(EngineRequest request) {
    auto answer = Ask(std::move(request));
    while (engine->RunOneStep()) {
    }
    EXPECT_TRUE(answer->status.ok()) << answer->status;
    return answer;
  }

  const StoreReader& store;
  PackedModel model;
  MemoryProvider provider;
  std::unique_ptr<StepEngine> engine;
  RequestId last;
};

inline std::unique_ptr<Tokenizer> CheckpointTokenizer(const std::string& checkpoint) {
  return *Tokenizer::FromBlob(*Checkpoint::Open(StrCat(DataFolder(), "/", checkpoint))->CompiledTokenizer());
}

}  // namespace moed
