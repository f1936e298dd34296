#include "bench/systems/ablations.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr AblationRow kAblations[] = {
    // EdgeMoE adds its three parts to loading on demand one after the other; policies are compared without preloading.
    {"EdgeMoE", "widths of its own for every expert", "load-on-demand+fidelity-rule=widths", "load-on-demand", "fig. 18, Q"},
    {"EdgeMoE", "preloading, no cache", "load-on-demand+fidelity-rule=widths+predictor=activation-path",
     "load-on-demand+fidelity-rule=widths", "fig. 18, P"},
    {"EdgeMoE", "the buffer", "edgemoe", "load-on-demand+fidelity-rule=widths+predictor=activation-path", "fig. 18, C"},
    {"EdgeMoE", "widths of its own for every expert, of the whole", "edgemoe", "edgemoe+fidelity-rule=exact", "own"},
    {"EdgeMoE", "preloading, of the whole", "edgemoe", "edgemoe+predictor=none", "own"},
    {"EdgeMoE", "its eviction instead of lru", "edgemoe+predictor=none", "edgemoe+policy=lru+predictor=none", "fig. 14"},
    {"EdgeMoE", "its eviction instead of lfu", "edgemoe+predictor=none", "edgemoe+policy=lfu+predictor=none", "fig. 14"},
    {"EdgeMoE", "its eviction instead of fifo", "edgemoe+predictor=none", "edgemoe+policy=fifo+predictor=none", "fig. 14"},
    {"EdgeMoE", "its eviction instead of the printed one", "edgemoe+predictor=none",
     "edgemoe+policy=edgemoe-printed+predictor=none", "own"},
    {"HOBBIT", "low precision and skipping", "hobbit", "hobbit+fidelity-rule=exact", "fig. 16"},
    {"HOBBIT", "prefetching", "hobbit", "hobbit+predictor=none", "fig. 17b, both precisions"},
    {"HOBBIT", "prefetching", "hobbit+fidelity-rule=exact", "hobbit+predictor=none+fidelity-rule=exact",
     "fig. 17b, one precision"},
    {"HOBBIT", "three layers ahead instead of one", "hobbit", "hobbit+stacked-gate-layers=1", "fig. 17b, p"},
    {"HOBBIT", "its eviction instead of lru", "hobbit", "hobbit+policy=lru", "fig. 18a"},
    {"HOBBIT", "its eviction instead of lfu", "hobbit", "hobbit+policy=lfu", "fig. 18a"},
    {"HOBBIT", "its eviction instead of random", "hobbit", "hobbit+policy=random", "fig. 18a"},
    {"SwapMoE", "importance instead of the number of tokens", "swapmoe", "swapmoe-tokens", "fig. 13, simple scheduling"},
    {"SwapMoE", "planned slots instead of equal ones", "swapmoe", "swapmoe-equal", "fig. 13, simple planning"},
    {"SwapMoE", "swapping at all", "swapmoe", "swapmoe-pruning", "fig. 10"},
    // Fate adds its parts to loading on demand one after the other.
    {"Fate", "prefetching, no cache", "load-on-demand+predictor=fate", "load-on-demand", "fig. 14, prefetch"},
    {"Fate", "the cache", "fate+fidelity-rule=exact", "load-on-demand+predictor=fate", "fig. 14, cache"},
    {"Fate", "the low precision", "fate", "fate+fidelity-rule=exact", "fig. 14, quantization"},
    {"Fate", "prefetching, of the whole", "fate", "fate+predictor=none", "own"},
    {"Fate", "its cache instead of lru", "fate", "fate+policy=lru", "own"},
    {"auto", "look-ahead", "auto", "auto+predictor=none", "own"},
    {"auto", "learned eviction instead of lru", "auto", "auto+policy=lru", "own"},
    {"auto", "both", "auto", "auto+policy=lru+predictor=none", "own"},
    {"auto", "the cache filled while the disk is idle", "auto", "auto+fill-cache=off", "own"},
    {"auto", "what it learned before", "auto+learned", "auto", "own"},
};

// Of one row in one cell.
struct Measured {
  const AblationRow* row = nullptr;
  std::optional<Spread> with, without;              // decode rates
  std::optional<Spread> gain;                       // with / without, turn by turn
  std::optional<double> bytes;                      // bytes a token, with / without
  std::string perplexity_with, perplexity_without;  // of the exact one, or "exact"
};

bool TakesPart(const ReportParts& parts, std::string_view name) {
  return std::ranges::find(parts.contenders, name, &Contender::name) != parts.contenders.end();
}

std::string PerplexityText(const ReportParts& parts, const Cell& cell, const std::string& contender) {
  if (IsExact(parts.journal, cell, contender)) return "exact";
  const Record* quality = parts.journal.Find({"quality", cell.share, "native", contender, 0});
  if (quality == nullptr || !quality->figures.contains("perplexity_ratio")) return "";
  return absl::StrFormat("%.3f", quality->figures.at("perplexity_ratio"));
}

std::vector<Measured> MeasuredIn(const ReportParts& parts, const Cell& cell) {
  std::vector<Measured> all;
  for (const AblationRow& row : kAblations) {
    const std::string with(row.with), without(row.without);
    if (!TakesPart(parts, with) || !TakesPart(parts, without)) continue;
    Measured measured{.row = &row};
    measured.with = SpreadOf(parts.journal, cell, with, "decode_tokens_per_second");
    measured.without = SpreadOf(parts.journal, cell, without, "decode_tokens_per_second");
    measured.gain = RatioOf(parts.journal, cell, with, without);
    const auto bytes_with = SpreadOf(parts.journal, cell, with, "bytes_per_token");
    const auto bytes_without = SpreadOf(parts.journal, cell, without, "bytes_per_token");
    if (bytes_with && bytes_without && bytes_without->median > 0) measured.bytes = bytes_with->median / bytes_without->median;
    measured.perplexity_with = PerplexityText(parts, cell, with);
    measured.perplexity_without = PerplexityText(parts, cell, without);
    all.push_back(measured);
  }
  return all;
}

std::string GainText(const Measured& measured) {
  if (!measured.gain) return "not measured";
  return absl::StrFormat("%.2f (%.2f to %.2f)", measured.gain->median, measured.gain->low, measured.gain->high);
}

std::string Row(const Measured& measured) {
  const AblationRow& row = *measured.row;
  const auto rate = [](const std::optional<Spread>& spread) {
    return spread ? absl::StrFormat("%.1f", spread->median) : std::string();
  };
  return StrCat("| ", row.system, " | ", row.part, " | ", row.source, " | ", row.with, " | ", row.without, " | ",
                rate(measured.with), " | ", rate(measured.without), " | ", GainText(measured), " | ",
                measured.bytes ? absl::StrFormat("%.2f", *measured.bytes) : "", " | ", measured.perplexity_with, " | ",
                measured.perplexity_without, " |\n");
}

}  // namespace

std::span<const AblationRow> Ablations() { return kAblations; }

std::vector<std::string> AblationNames() {
  std::vector<std::string> names;
  for (const AblationRow& row : kAblations) {
    for (const std::string_view name : {row.with, row.without}) {
      if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    }
  }
  return names;
}

std::string AblationTables(const ReportParts& parts) {
  std::string text;
  for (const Cell& cell : parts.cells) {
    const std::vector<Measured> rows = MeasuredIn(parts, cell);
    if (rows.empty()) continue;
    text += StrCat("### What each part gives: ", cell.name(),
                   "\n\n| system | part | the paper's | with it | without it | decode with | without | with / without | bytes | "
                   "perplexity / exact, with | without |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (const Measured& row : rows) text += Row(row);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json AblationJson(const ReportParts& parts) {
  auto json = nlohmann::ordered_json::array();
  for (const Cell& cell : parts.cells) {
    for (const Measured& measured : MeasuredIn(parts, cell)) {
      nlohmann::ordered_json row{{"cell", cell.name()},        {"system", measured.row->system},
                                 {"part", measured.row->part}, {"source", measured.row->source},
                                 {"with", measured.row->with}, {"without", measured.row->without}};
      if (measured.gain) {
        row.update({{"median", measured.gain->median}, {"low", measured.gain->low}, {"high", measured.gain->high}});
      }
      if (measured.bytes) row["bytes_ratio"] = *measured.bytes;
      json.push_back(std::move(row));
    }
  }
  return json;
}

}  // namespace moed
