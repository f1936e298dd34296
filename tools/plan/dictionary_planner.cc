#include "tools/plan/dictionary_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/expert/memory_plan.h"
#include "tools/pack/interrupt.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/loss_evaluator.h"

namespace moed {
namespace {

class DictionaryPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    command.add_option("--out", out_, "the dictionary: --preset-options paths=FILE; it fits this store alone")
        ->required()
        ->option_text("FILE");
    command
        .add_option("--table", table_, "size of the dictionary in memory and on disk; more keys than fit leave the rarest out")
        ->option_text("BYTES (default: 8MiB)");
  }

  absl::Status Run() override {
    MOED_ASSIGN_OR_RETURN(const uint64_t table_bytes, ParseBytes(table_));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> text, evaluation_.Open());
    const ExpertIndex experts(text->store().description().moe_layers, text->spec().experts, 1);
    ActivationPaths paths(experts.layers(), experts.experts_per_layer(), ActivationPaths::kReach, table_bytes);
    DictionaryReport report;
    PathCounter counter(experts, static_cast<size_t>(evaluation_.tokens) / 2, paths, report);
    std::fprintf(stderr, "counting paths over %d tokens\n", evaluation_.tokens);
    MOED_RETURN_IF_ERROR(text->Loss(counter, /*mask=*/nullptr, Interrupted).status());
    MOED_RETURN_IF_ERROR(paths.Write(out_, text->store().model_hash()));
    std::printf("%s: %zu tokens, %s\n%s", out_.c_str(), counter.tokens(), FormatBytes(paths.memory_bytes()).c_str(),
                report.Text().c_str());
    return absl::OkStatus();
  }

 private:
  EvaluationFlags evaluation_;
  std::string out_;
  std::string table_ = "8MiB";
};

}  // namespace

std::unique_ptr<Planner> MakeDictionaryPlanner() { return std::make_unique<DictionaryPlanner>(); }

PathCounter::PathCounter(const ExpertIndex& experts, size_t report_from, ActivationPaths& paths, DictionaryReport& report)
    : index_(experts),
      report_from_(report_from),
      paths_(paths),
      report_(report),
      probabilities_(static_cast<size_t>(experts.experts_per_layer())),
      order_(probabilities_.size()) {}

void PathCounter::Count(const LayerRouting& routing) {
  const int position = index_.Position(routing.layer);
  if (position == 0) seen_tokens_ += routing.tokens.size();
  tokens_.Advance(position, routing, [&](const TokenRouting&, const PathKey& key, const ExpertSet& chosen) {
    if (position > 0 && seen_tokens_ > report_from_) Compare(position, key, chosen);
    paths_.Add(position, key, chosen);
  });
}

void PathCounter::Compare(int position, const PathKey& key, const ExpertSet& chosen) {
  DictionaryReport::Source& source = report_.sources[EnumIndex(paths_.Estimate(position, key, probabilities_))];
  ++source.estimates;
  source.chosen += chosen.size();
  std::iota(order_.begin(), order_.end(), 0);
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(chosen.size());
  std::partial_sort(order_.begin(), end, order_.end(), [this](int32_t a, int32_t b) {
    const float p = probabilities_[static_cast<size_t>(a)], q = probabilities_[static_cast<size_t>(b)];
    return p != q ? p > q : a < b;
  });
  for (auto expert = order_.begin(); expert != end; ++expert) source.right += std::ranges::binary_search(chosen, *expert);
}

std::string DictionaryReport::Text() const {
  Source all;
  for (const Source& source : sources) {
    all.estimates += source.estimates;
    all.chosen += source.chosen;
    all.right += source.right;
  }
  const auto percent = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0. : 100. * static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto row = [&](const char* name, const Source& source) {
    return absl::StrFormat("%-16s %6.1f %% %12.1f %%\n", name, percent(source.estimates, all.estimates),
                           percent(source.right, source.chosen));
  };
  std::string text = "the later half's tokens, each estimated before it was counted:\nanswered by         share   top-k recall\n";
  for (size_t i = 0; i < sources.size(); ++i) text += row(kPathSourceNames[i], sources[i]);
  return text + row("all", all);
}

}  // namespace moed
