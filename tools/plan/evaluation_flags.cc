#include "tools/plan/evaluation_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "core/base/status.h"
#include "core/machine/control_groups.h"
#include "tools/pack/json_text.h"

namespace moed {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kMaxDefaultThreads = 16;
constexpr uint64_t kMaxTextBytes = 1ull << 30;

int DefaultThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxDefaultThreads); }

uint64_t DefaultCacheBytes(const StoreDescription& store) {
  uint64_t all = 0;
  for (size_t p = 0; p < store.precisions.size(); ++p) all += AllRecordBytes(store, static_cast<Precision>(p));
  const uint64_t left = MemoryLeft().value_or(all), trunk = std::min(left, store.trunk_bytes);
  return std::min(all, (left - trunk) / 2);
}

}  // namespace

void EvaluationFlags::Define(CLI::App& command) {
  command.add_option("STORE", store, "a packed store")->required()->option_text(" ");
  command
      .add_option("TEXT", text,
                  "calibration text: a UTF-8 file like what will be asked of the model; for an encoder-decoder, where it is not "
                  "refused, JSON lines {\"source\": [ids], \"target\": [ids]}")
      ->required()
      ->option_text(" ");
  command.add_option("--tokens", tokens, "tokens of the text, from its start, that every measurement takes")
      ->check(CLI::Range(2, 1 << 24))
      ->option_text(StrCat("N (default: ", tokens, ")"));
  command.add_option("--window", window, "tokens that see each other")
      ->check(CLI::Range(2, 1 << 20))
      ->option_text("N (default: 256)");
  command
      .add_option("--threads", threads, StrCat("threads that compute (default: one per processor, here ", DefaultThreads(), ")"))
      ->check(CLI::Range(1, kMaxThreads))
      ->option_text(StrCat("N (1..", kMaxThreads, ")"));
  command
      .add_option("--cache-mib", cache_mib,
                  "memory for experts (default: all of them, half of what is left beside the trunk at most)")
      ->check(CLI::Range(1, 1 << 30))
      ->option_text("N");
}

absl::StatusOr<std::string> EvaluationFlags::Contents() const { return ReadText(text, kMaxTextBytes); }

absl::StatusOr<std::unique_ptr<LossEvaluator>> EvaluationFlags::Open() const {
  MOED_ASSIGN_OR_RETURN(const std::string contents, Contents());
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> description, StoreReader::Open(store));
  LossOptions options;
  options.tokens = tokens;
  options.window = std::min(window, tokens);
  options.threads = threads > 0 ? threads : DefaultThreads();
  options.cache_bytes = cache_mib > 0 ? static_cast<uint64_t>(cache_mib) << 20 : DefaultCacheBytes(description->description());
  absl::StatusOr<std::unique_ptr<LossEvaluator>> evaluator = LossEvaluator::Open(store, contents, options);
  if (evaluator.ok()) return evaluator;
  return absl::Status(evaluator.status().code(), StrCat(store, ", ", text, ": ", evaluator.status().message()));
}

absl::StatusOr<std::unique_ptr<LossEvaluator>> EvaluationFlags::OpenDecoder() const {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<LossEvaluator> evaluator, Open());
  if (!evaluator->spec().encoder) return evaluator;
  return FailedPrecondition(store, " is an encoder-decoder, whose layers do not all see the same tokens; this plan is made ",
                            "for decoders alone");
}

}  // namespace moed
