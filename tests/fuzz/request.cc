// Messages of clients, as bytes: translated, then held against the engine's limits.
#include "core/engine/request_check.h"
#include "server/rpc/request_translation.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr EngineLimits kLimits{
    .max_context = 256, .max_new_tokens = 128, .max_running = 4, .queue_capacity = 4, .vocabulary = 1000};

void Check(absl::StatusOr<PendingRequest> request) {
  if (!request.ok()) return;
  if (request->is_text) request->engine.prompt = {TokenId(1)};
  if (!CheckRequest(request->engine, kLimits).ok()) return;
  for (const TokenId token : request->engine.prompt) MOED_CHECK(token.value() >= 0 && token.value() < kLimits.vocabulary);
  (void)CheckContext(request->engine, kLimits, 0);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::v1::GenerateRequest generate;
  if (generate.ParseFromArray(data, static_cast<int>(size))) Check(TranslateGenerate(generate));
  moe::v1::ScoreRequest score;
  if (score.ParseFromArray(data, static_cast<int>(size))) Check(TranslateScore(score));
  return 0;
}
