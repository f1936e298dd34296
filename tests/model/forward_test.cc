// What Forward promises beside the numbers: failures stay with their sequence, hooks see what they should, nothing is allocated
// twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <set>

#include "core/model/scratch.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

std::vector<TokenId> Tokens(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId((first + 17 * i) % 256));
  return tokens;
}

class ForwardTest : public testing::TestWithParam<std::string> {
 protected:
  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kQ8);
  MemoryProvider provider_{store_};
};

struct Batch3 {
  std::vector<std::vector<TokenId>> prompts = {Tokens(3, 2), Tokens(90, 1), Tokens(201, 2)};
  std::vector<TestSequence> sequences = std::vector<TestSequence>(3);
  std::vector<SequenceChunk> Chunks() {
    std::vector<SequenceChunk> chunks;
    for (size_t i = 0; i < prompts.size(); ++i) {
      chunks.push_back({.sequence = SequenceId(i), .tokens = prompts[i], .kv = &sequences[i].kv});
    }
    return chunks;
  }
};

// By layer and expert: the sessions whose tokens choose it in a step of Batch3.
std::map<ExpertKey, std::set<SequenceId>> ChoosersOf(PackedModel& model, MemoryProvider& provider) {
  std::map<ExpertKey, std::set<SequenceId>> choosers;
  provider.on_begin = [&](const LayerRouting& routing) {
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) choosers[{routing.layer, choice.expert}].insert(token.sequence);
    }
  };
  Batch3 batch;
  auto chunks = batch.Chunks();
  model.Step(provider, chunks);
  for (TestSequence& sequence : batch.sequences) model.kv().Release(sequence.kv);
  provider.on_begin = nullptr;
  return choosers;
}

TEST_P(ForwardTest, AFailedExpertHurtsOnlyTheChunksThatChoseIt) {
  PackedModel model(store_);
  Batch3 clean;
  auto clean_chunks = clean.Chunks();
  const std::vector<Logits> expected = model.Step(provider_, clean_chunks);
  for (TestSequence& sequence : clean.sequences) model.kv().Release(sequence.kv);

  int partial = 0;
  for (const auto& [key, sessions] : ChoosersOf(model, provider_)) {
    partial += sessions.size() < 3;
    for (const std::optional<ExpertPart> part : {std::optional<ExpertPart>(), std::optional(ExpertPart::kGate),
                                                 std::optional(ExpertPart::kUp), std::optional(ExpertPart::kDown)}) {
      Batch3 batch;
      auto chunks = batch.Chunks();
      provider_.FailWith(ExpertFault{key, part});
      const std::vector<Logits> got = model.Step(provider_, chunks);
      provider_.FailWith(std::nullopt);
      for (size_t i = 0; i < chunks.size(); ++i) {
        const bool failed = sessions.contains(SequenceId(i));
        EXPECT_EQ(chunks[i].status.code(), failed ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
        EXPECT_EQ(batch.sequences[i].kv.length, failed ? 0 : static_cast<int>(batch.prompts[i].size()));
        EXPECT_TRUE(failed ? got[i].empty() : SameBits(got[i], expected[i]));
        if (!failed) continue;  // the same chunk again, now that the expert can be read
        const std::vector<Logits> again = model.Step(provider_, std::span(&chunks[i], 1));
        EXPECT_TRUE(chunks[i].status.ok() && SameBits(again[0], expected[i]));
      }
      for (TestSequence& sequence : batch.sequences) model.kv().Release(sequence.kv);
    }
  }
  EXPECT_GT(partial, 0) << "no expert was chosen by only some of the sequences: the test shows nothing";
}

// Takes one chunk out of the step after one layer.
class Interruption final : public StepWatcher {
 public:
  Interruption(int layer, size_t chunk) : layer_(layer), chunk_(chunk) {}
  void OnLayerDone(std::span<SequenceChunk> chunks) override {
    if (seen_++ == layer_) chunks[chunk_].status = absl::CancelledError("nobody waits");
  }
  int seen() const { return seen_; }

 private:
  const int layer_;
  const size_t chunk_;
  int seen_ = 0;
};

TEST_P(ForwardTest, AChunkThatIsTakenOutBetweenLayersLeavesTheOthersTheirBits) {
  PackedModel model(store_);
  Batch3 clean;
  auto clean_chunks = clean.Chunks();
  const std::vector<Logits> expected = model.Step(provider_, clean_chunks);
  for (TestSequence& sequence : clean.sequences) model.kv().Release(sequence.kv);

  const int between = model.spec().layers - 1;
  for (int layer = 0; layer < between; ++layer) {
    for (size_t out = 0; out < 3; ++out) {
      Batch3 batch;
      auto chunks = batch.Chunks();
      Interruption interruption(layer, out);
      const std::vector<Logits> got = model.Step(provider_, chunks, &interruption);
      EXPECT_EQ(interruption.seen(), between);
      for (size_t i = 0; i < chunks.size(); ++i) {
        EXPECT_EQ(chunks[i].status.ok(), i != out);
        EXPECT_EQ(batch.sequences[i].kv.length, i == out ? 0 : static_cast<int>(batch.prompts[i].size()));
        EXPECT_TRUE(i == out ? got[i].empty() : SameBits(got[i], expected[i]));
      }
      const std::vector<Logits> again = model.Step(provider_, std::span(&chunks[out], 1));
      EXPECT_TRUE(chunks[out].status.ok() && SameBits(again[0], expected[out]));
      for (TestSequence& sequence : batch.sequences) model.kv().Release(sequence.kv);
    }
  }
}

// Whoever ends then finds no expert in use.
TEST_P(ForwardTest, AStepThatMemoryRunsOutInHoldsNoExpert) {
  struct Exhausted final : StepWatcher {
    void OnLayerDone(std::span<SequenceChunk>) override {}
    void OnExpert(LayerId, int32_t, const Activations&, const Activations&) override { throw std::bad_alloc(); }
  } exhausted;
  PackedModel model(store_);
  Batch3 batch;
  auto chunks = batch.Chunks();
  EXPECT_THROW(model.Step(provider_, chunks, &exhausted), std::bad_alloc);
  EXPECT_EQ(provider_.pins(), 0);
}

TEST_P(ForwardTest, HooksSeeEveryTokenAndTheLastGateInputOfEachChunk) {
  PackedModel model(store_);
  std::vector<std::pair<SequenceId, TokenId>> tokens;
  std::vector<std::pair<LayerId, SequenceId>> gate_inputs;
  std::map<LayerId, int> masked;
  provider_.on_token = [&](SequenceId sequence, TokenId token) { tokens.emplace_back(sequence, token); };
  provider_.on_gate_input = [&](SequenceId sequence, LayerId layer, std::span<const float> hidden) {
    EXPECT_EQ(static_cast<int>(hidden.size()), model.spec().hidden);
    gate_inputs.emplace_back(layer, sequence);
  };
  provider_.mask_router = [&](LayerId layer, std::span<float> logits) {
    EXPECT_EQ(static_cast<int>(logits.size()), model.spec().experts);
    ++masked[layer];
  };
  Batch3 batch;
  auto chunks = batch.Chunks();
  model.Step(provider_, chunks);

  std::vector<std::pair<SequenceId, TokenId>> expected_tokens;
  std::vector<std::pair<LayerId, SequenceId>> expected_inputs;
  std::map<LayerId, int> expected_masked;
  for (size_t i = 0; i < 3; ++i) {
    for (const TokenId token : batch.prompts[i]) expected_tokens.emplace_back(SequenceId(i), token);
  }
  for (const LayerId layer : model.spec().MoeLayers()) {
    for (size_t i = 0; i < 3; ++i) expected_inputs.emplace_back(layer, SequenceId(i));
    expected_masked[layer] = static_cast<int>(expected_tokens.size());
  }
  EXPECT_EQ(tokens, expected_tokens);
  EXPECT_EQ(gate_inputs, expected_inputs);
  EXPECT_EQ(masked, expected_masked);
  EXPECT_EQ(provider_.token_gate_inputs, static_cast<int>(expected_tokens.size() * expected_masked.size()));
}

TEST_P(ForwardTest, RoutingSaysWhichTokenEachFollows) {
  PackedModel model(store_);
  Batch3 batch;
  auto chunks = batch.Chunks();
  std::vector<TokenId> expected, routed;
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].before = TokenId(static_cast<int32_t>(90 + i));
    expected.push_back(chunks[i].before);
    expected.insert(expected.end(), batch.prompts[i].begin(), batch.prompts[i].end() - 1);
  }
  provider_.on_begin = [&](const LayerRouting& routing) {
    routed.clear();
    for (const TokenRouting& token : routing.tokens) routed.push_back(token.before);
    EXPECT_EQ(routed, expected);
  };
  model.Step(provider_, chunks);
  EXPECT_FALSE(routed.empty());
}

TEST_P(ForwardTest, AMaskedExpertIsNotChosen) {
  PackedModel model(store_);
  provider_.mask_router = [](LayerId, std::span<float> logits) { logits[1] = -INFINITY; };
  const ModelSpec& spec = model.spec();
  const bool shares = spec.router_correction && spec.router_scoring == RouterScoring::kSoftmax;  // grow, corrections do not
  const bool undone = spec.router_groups > 1 || shares;
  int masked = 0;
  provider_.on_begin = [&](const LayerRouting& routing) {
    for (const TokenRouting& token : routing.tokens) {
      masked += token.masked;
      const bool chosen = std::ranges::any_of(token.choices, [](const ExpertChoice& choice) { return choice.expert == 1; });
      EXPECT_TRUE(!chosen || (undone && token.masked == 0));
    }
  };
  TestSequence sequence;
  model.Feed(provider_, sequence, Tokens(5, 40), 40);
  EXPECT_GT(masked, 0);
}

// Of the choices without a mask no more are gone than were masked, whatever the groups make of the rest.
TEST_P(ForwardTest, AMaskCostsNoOtherChoice) {
  PackedModel model(store_);
  std::map<LayerId, std::vector<std::set<int32_t>>> unmasked;
  provider_.on_begin = [&](const LayerRouting& routing) {
    for (const TokenRouting& token : routing.tokens) {
      std::set<int32_t>& experts = unmasked[routing.layer].emplace_back();
      for (const ExpertChoice& choice : token.choices) experts.insert(choice.expert);
    }
  };
  TestSequence plain;
  model.Feed(provider_, plain, Tokens(5, 40), 40);

  const LayerId first = model.spec().MoeLayers().front();  // what comes before it is the same
  provider_.mask_router = [&](LayerId layer, std::span<float> logits) {
    for (size_t expert = 0; layer == first && expert < logits.size(); expert += 2) logits[expert] = -INFINITY;
  };
  provider_.on_begin = [&](const LayerRouting& routing) {
    for (size_t t = 0; routing.layer == first && t < routing.tokens.size(); ++t) {
      std::set<int32_t> gone = unmasked[first][t];
      for (const ExpertChoice& choice : routing.tokens[t].choices) gone.erase(choice.expert);
      EXPECT_EQ(static_cast<int>(gone.size()), routing.tokens[t].masked);
    }
  };
  TestSequence masked;
  model.Feed(provider_, masked, Tokens(5, 40), 40);
}

bool HasProbabilities(const ModelSpec& spec) {
  return spec.router_scoring == RouterScoring::kSoftmax && !spec.router_correction && spec.router_groups == 1;
}

// What is not chosen is nowhere above what is.
void ExpectBestFirst(std::span<const float> ranks, std::span<const ExpertChoice> choices) {
  std::set<int32_t> chosen;
  float lowest = 1;
  for (const ExpertChoice& choice : choices) {
    chosen.insert(choice.expert);
    lowest = std::min(lowest, ranks[choice.expert]);
  }
  for (size_t expert = 0; expert < ranks.size(); ++expert) {
    EXPECT_TRUE(ranks[expert] >= 0 && ranks[expert] <= 1) << ranks[expert];
    if (chosen.contains(static_cast<int32_t>(expert))) continue;
    EXPECT_LE(ranks[expert], lowest);
  }
}

// Asked for in the middle of a step, as a predictor does.
TEST_P(ForwardTest, GateProbabilitiesAreTheRoutersOwn) {
  PackedModel model(store_);
  TestSequence first, second;
  const auto tokens = Tokens(40, 9);
  const Logits expected = model.Feed(provider_, first, tokens, 4);
  std::vector<float> probabilities(model.spec().experts);
  provider_.on_gate_input = [&](SequenceId, LayerId layer, std::span<const float> hidden) {
    model.model().GateProbabilities(layer, hidden, probabilities);
  };
  provider_.on_begin = [&](const LayerRouting& routing) {
    const std::span<const ExpertChoice> choices = routing.tokens.back().choices;
    if (!HasProbabilities(model.spec())) return ExpectBestFirst(probabilities, choices);
    float sum = 0;
    for (const ExpertChoice& choice : choices) sum += probabilities[choice.expert];
    for (const ExpertChoice& choice : choices) {
      const float probability = probabilities[choice.expert];
      EXPECT_EQ(choice.probability, model.spec().norm_topk_prob ? probability / sum : probability);
    }
  };
  EXPECT_TRUE(SameBits(model.Feed(provider_, second, tokens, 4), expected));
}

TEST_P(ForwardTest, TraceHasAttentionOfEachLayerAndBothHalvesOfItsExperts) {
  FakeClock clock;
  Trace trace(clock, 1000);
  PackedModel model(store_, {.trace = &trace});
  std::set<ExpertKey> experts;
  provider_.on_begin = [&](const LayerRouting& routing) {
    for (const ExpertChoice& choice : routing.tokens[0].choices) experts.insert({routing.layer, choice.expert});
  };
  TestSequence sequence;
  model.Feed(provider_, sequence, Tokens(8, 1), 1);
  std::vector<int> attention(model.spec().layers);
  std::map<int, int> halves;  // by layer
  for (const TraceEvent& event : trace.Events()) {
    EXPECT_EQ(event.track, kComputeTrack);
    if (std::string_view(event.name) == "attention") ++attention[event.layer];
    if (std::string_view(event.name) != "expert") continue;
    ++halves[event.layer];
    EXPECT_TRUE(experts.contains({LayerId(event.layer), event.expert}));
  }
  for (int layer = 0; layer < model.spec().layers; ++layer) {
    EXPECT_EQ(attention[layer], model.spec().HasMixer(LayerId(layer)) ? 1 : 0) << layer;
  }
  std::map<int, int> expected;  // all experts were there at once: one group
  for (const ExpertKey& key : experts) expected[key.layer.value()] = 2;
  EXPECT_EQ(halves, expected);
}

TEST_P(ForwardTest, LogitsOnlyWhereTheyAreWanted) {
  PackedModel model(store_);
  const auto tokens = Tokens(1, 6);
  TestSequence whole, tail, none;
  const Logits all = model.Feed(provider_, whole, tokens, 6);
  SequenceChunk chunks[] = {{.tokens = tokens, .kv = &tail.kv, .first_logits = 5},
                            {.tokens = tokens, .kv = &none.kv, .first_logits = 6}};
  const std::vector<Logits> got = model.Step(provider_, chunks);
  EXPECT_TRUE(SameBits(got[0], {all.back()}));
  EXPECT_TRUE(got[1].empty());
  EXPECT_EQ(none.kv.length, 6);
}

TEST_P(ForwardTest, ScratchBytesAreExact) {
  const ModelSpec spec = *SpecFromJson(store_.description().model_spec);
  for (const ModelOptions& options :
       {ModelOptions{1, 1, 1}, ModelOptions{7, 33, 3}, ModelOptions{64, 160, 200}, ModelOptions{64, 160, 200, 5}}) {
    const uint64_t lent_bytes = Model::LentBytes(spec, options);
    EXPECT_EQ(lent_bytes > 0, options.own_step_tokens > 0);
    auto lent = Buffer::Allocate(lent_bytes);
    ASSERT_TRUE(lent.ok());
    if (lent_bytes > 0) CarveLent(spec, options, options.max_step_tokens, lent->span());  // as below
    for (const int threads : {1, 2, 5}) {
      const uint64_t bytes = Model::ScratchBytes(spec, options, threads);
      auto buffer = Buffer::Allocate(bytes);
      ASSERT_TRUE(buffer.ok());
      const Scratch scratch = CarveScratch(spec, options, threads, buffer->span());  // ends the process when it does not fit
      const auto* end = reinterpret_cast<const std::byte*>(scratch.row_chunks.data() + scratch.row_chunks.size());
      EXPECT_LT(buffer->data() + buffer->size() - end, static_cast<ptrdiff_t>(kPageBytes));
    }
  }
}

TEST_P(ForwardTest, LoadRefusesOptionsAndSpecsThatDoNotFit) {
  const ModelSpec spec = *SpecFromJson(store_.description().model_spec);
  InlineExecutor executor;
  auto backend = *MakeComputeBackend("scalar", executor);
  auto kv = *KvPool::Create(spec, {.pages = 1});
  const auto load = [&](const ModelSpec& other, const ModelOptions& options) {
    return Model::Load({store_, other, *backend, *kv}, options).status();
  };
  const ModelOptions good = {8, 16, 1};
  EXPECT_TRUE(load(spec, good).ok());
  for (const ModelOptions& bad :
       {ModelOptions{0, 16, 1}, ModelOptions{8, 0, 1}, ModelOptions{8, spec.max_positions + 1, 1}, ModelOptions{8, 16, 0}}) {
    EXPECT_EQ(load(spec, bad).code(), absl::StatusCode::kInvalidArgument);
  }
  const auto change = [&](auto&& edit) {
    ModelSpec other = spec;
    edit(other);
    return load(other, good);
  };
  const auto expect_loss = [](const absl::Status& status, std::string_view named) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(ToAbsl(named)), absl::string_view::npos) << status;
  };
  expect_loss(change([](ModelSpec& s) { s.vocabulary += 8; }), "tensor embed has shape");
  const auto widen_heads = [](ModelSpec& s) {
    s.head_dim += 2, s.rotary_dims = s.latent ? s.rotary_dims + 2 : 0;
    if (s.divided) s.divided->divisors.push_back(1);
    for (Rotation& rotation : s.more_rotations) {
      if (rotation.divided) rotation.divided->divisors.push_back(1);
    }
  };
  expect_loss(change(widen_heads), "rope.inv_freq has shape");
  expect_loss(change([](ModelSpec& s) { s.experts += s.router_groups; }), "experts a layer");
  expect_loss(change([](ModelSpec& s) { s.expert_ffn += 1; }), "experts has shape");
  expect_loss(change([](ModelSpec& s) { s.tied_embeddings = !s.tied_embeddings; }), "head");
  if (spec.latent) {
    int attending = 0;
    while (!spec.HasAttention(LayerId(attending))) ++attending;
    const std::string layer = StrCat("layers.", attending, ".");
    expect_loss(change([](ModelSpec& s) { s.latent->q_rank += 8; }), layer + "q");
    expect_loss(change([](ModelSpec& s) { s.latent->kv_rank += 8; }), "kv_a has shape");
    expect_loss(change([](ModelSpec& s) { s.latent->value_dim += 8; }), layer + "o has shape");
    if (spec.delta_net) expect_loss(change([](ModelSpec& s) { s.delta_net->gate_rank += 1; }), "attention_gate has shape");
  } else if (spec.values_are_keys) {
    expect_loss(change([](ModelSpec& s) { s.o_bias = !s.o_bias; }), "o_bias");
  } else {
    expect_loss(change([](ModelSpec& s) { s.qkv_bias = !s.qkv_bias; }), "q_bias");
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ForwardTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
