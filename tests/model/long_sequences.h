// Sequences much longer than what layers with windows or states keep of them.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/model/packed_model.h"

namespace moed {

inline std::vector<std::string> CheckpointsWhere(bool (*holds)(const ModelSpec& spec)) {
  std::vector<std::string> names;
  for (const std::string& name : CheckpointNames()) {
    const auto spec = SpecFromJson(PackedStore(name, FormatId::kQ8).description().model_spec);
    if (holds(*spec)) names.push_back(name);
  }
  return names;
}

inline std::vector<TokenId> RandomTokens(int count, uint64_t seed, int vocabulary) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId(static_cast<int32_t>(random() % vocabulary)));
  return tokens;
}

inline Logits Part(const Logits& logits, int begin, int end) { return {logits.begin() + begin, logits.begin() + end}; }

struct ComingAndGoing {
  int steps = 0;
  int long_piece = 0, short_piece = 0;  // tokens at most; a third are long ones
  // Before every piece: may take the sequence back to its beginning, and has to where it is at its end.
  std::function<void(KvSequence& kv, std::mt19937_64& random)> restart;
};

// Each prompt is a sequence, fed in steps of random pieces together with the others: its logits are the expected ones.
inline void ExpectSequencesDoNotMix(PackedModel& model, MemoryProvider& provider,
                                    const std::vector<std::vector<TokenId>>& prompts, const std::vector<Logits>& expected,
                                    const ComingAndGoing& how) {
  std::vector<TestSequence> sequences(prompts.size());
  std::mt19937_64 random(4);
  for (int step = 0; step < how.steps; ++step) {
    std::vector<SequenceChunk> chunks;
    std::vector<size_t> owners;
    for (size_t i = 0; i < prompts.size(); ++i) {
      KvSequence& kv = sequences[i].kv;
      how.restart(kv, random);
      if (random() % 3 == 0) continue;
      const int longest = random() % 3 == 0 ? how.long_piece : how.short_piece;
      const size_t count = 1 + random() % std::min<size_t>(prompts[i].size() - kv.length, longest);
      owners.push_back(i);
      chunks.push_back({.sequence = SequenceId(i), .tokens = std::span(prompts[i]).subspan(kv.length, count), .kv = &kv});
    }
    if (chunks.empty()) continue;
    const std::vector<Logits> got = model.Step(provider, chunks);
    for (size_t c = 0; c < chunks.size(); ++c) {
      const int end = sequences[owners[c]].kv.length;
      EXPECT_TRUE(SameBits(got[c], Part(expected[owners[c]], end - static_cast<int>(chunks[c].tokens.size()), end)));
    }
  }
}

}  // namespace moed
