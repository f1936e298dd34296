// Requests of a daemon whose device fails: those of the step end with its error, the engine goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/base/clock.h"
#include "core/engine/step_engine.h"
#include "tests/engine/observed_answer.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/model/long_sequences.h"

namespace moed {
namespace device_failure_test {

constexpr int kContext = 64, kNewTokens = 4;
constexpr char kCheckpoint[] = "qwen2_moe";

struct Serving {
  Serving() {
    auto made = StepEngine::Create({.max_context = kContext,
                                    .max_new_tokens = kContext - 1,
                                    .max_running = 2,
                                    .max_step_tokens = 16,
                                    .max_kept_sessions = 2,
                                    .prefix_cache = true},
                                   {model.model(), provider, model.kv(), *tokenizer, clock});
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }
  std::shared_ptr<ObservedAnswer> Ask(const std::vector<TokenId>& prompt, const std::string& session = "") {
    auto answer = std::make_shared<ObservedAnswer>();
    EXPECT_TRUE(engine->Submit(RequestOf(prompt, session, kNewTokens, ++asked), answer).ok());
    return answer;
  }
  void Run() {
    while (engine->RunOneStep()) {
    }
  }

  const StoreReader& store = PackedStore(kCheckpoint, FormatId::kQ8);
  const std::unique_ptr<Tokenizer> tokenizer =
      *Tokenizer::FromBlob(*CompileTokenizer(ReadText(StrCat(DataFolder(), "/", kCheckpoint, "/tokenizer.json"))));
  EmulatedBackend emulated{{.watch = false, .attributes = emulation::kUnifiedDevice}};
  PackedModel model{store,
                    {.max_step_tokens = 16, .page_tokens = 16, .max_context = kContext, .use_backend = emulated.backend.get()}};
  MemoryProvider provider{store};
  const FakeClock clock;
  std::unique_ptr<StepEngine> engine;
  int asked = 0;
};

TEST(EngineOnADeviceThatFails, RequestsOfTheStepEndAndOthersAreAnswered) {
  const std::vector<TokenId> first = RandomTokens(30, 1, 200), second = RandomTokens(9, 2, 200);
  Serving well;
  const auto expected_first = well.Ask(first), expected_second = well.Ask(second, "s");
  well.Run();
  ASSERT_EQ(expected_first->status, absl::OkStatus());
  ASSERT_EQ(expected_second->status, absl::OkStatus());

  Serving serving;
  for (const int launch : {0, 20, 60, 100}) {
    const auto failed_first = serving.Ask(first), failed_second = serving.Ask(second, "s");
    serving.emulated.device->FailLaunch(launch);
    serving.Run();
    for (const auto& failed : {failed_first, failed_second}) {
      EXPECT_EQ(failed->status.code(), absl::StatusCode::kInternal) << launch;
      EXPECT_THAT(std::string(failed->status.message()), ::testing::HasSubstr("the compute backend 'cuda-emulated' failed"));
    }
    EXPECT_FALSE(serving.emulated.device->TakeFaults().empty()) << launch;
  }
  const auto answered_first = serving.Ask(first), answered_second = serving.Ask(second, "s");
  serving.Run();
  ExpectSameBits(answered_first->tokens, expected_first->tokens, "first");
  ExpectSameBits(answered_second->tokens, expected_second->tokens, "second");
}

}  // namespace device_failure_test
}  // namespace moed
