#include "bench/systems/report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/systems/ablations.h"
#include "bench/systems/targets.h"
#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kRate[] = "decode_tokens_per_second";

Spread SpreadOfValues(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

std::vector<const Record*> TurnsOf(const SystemsJournal& journal, const Cell& cell, const std::string& contender) {
  std::vector<const Record*> turns;
  for (int turn = 0; turn < cell.protocol.turns; ++turn) {
    const Record* record = journal.Find({"speed", cell.share, cell.disk, contender, turn});
    if (record != nullptr) turns.push_back(record);
  }
  return turns;
}

const Record* QualityOf(const SystemsJournal& journal, int share, const std::string& contender) {
  return journal.Find({"quality", share, "native", contender, 0});
}

std::string WhyNot(const ReportParts& parts, const Cell& cell, const std::string& contender) {
  for (const Record* record : TurnsOf(parts.journal, cell, contender)) {
    if (!record->not_run.empty()) return record->not_run;
  }
  return "";
}

std::string Number(double value) { return absl::StrFormat("%.*f", value >= 100 ? 0 : value >= 10 ? 1 : 2, value); }
std::string Percent(double value) { return absl::StrFormat("%.*f %%", value < 0.0995 ? 1 : 0, 100 * value); }
std::string Megabytes(double value) { return absl::StrFormat("%.*f", value < 99.5e6 ? 1 : 0, value * 1e-6); }
std::string Ratio(double value) { return absl::StrFormat("%.3f", value); }
std::string Fine(double value) { return absl::StrFormat("%.4f", value); }

struct Column {
  const char* title;
  const char* figure;
  std::string (*text)(double value);
};
// After the decode rate.
constexpr Column kSpeedColumns[] = {
    {"prefill, tokens/s", "prefill_tokens_per_second", Number},
    {"MB a token", "bytes_per_token", Megabytes},
    {"stall", "stall_share", Percent},
    {"disk busy", "disk_busy_share", Percent},
    {"hits, prefill", "prefill_hit_ratio", Percent},
    {"hits, decode", "decode_hit_ratio", Percent},
    {"Belady's hits", "belady_hit_ratio", Percent},
    {"disk, MB/s", "disk_bytes_per_second", Megabytes},
    {"of the bound", "bound_share", Percent},
    {"lowered a token", "lowered_per_token", Number},
    {"skipped", "skipped_per_token", Number},
    {"masked", "masked_per_token", Number},
    {"gate mass lost", "gate_mass_lost", Percent},
    {"J a token", "joules_per_token", Number},
};
constexpr Column kQualityColumns[] = {
    {"perplexity / exact", "perplexity_ratio", Ratio},
    {"top-1 as exact", "top1_agreement", Percent},
    {"KL", "kl", Fine},
    {"prompts: perplexity / exact", "prompt_perplexity_ratio", Ratio},
};

std::string RateText(const ReportParts& parts, const Cell& cell, const std::string& contender) {
  const auto rate = SpreadOf(parts.journal, cell, contender, kRate);
  if (!rate) return "";
  if (TurnsOf(parts.journal, cell, contender).size() < 2) return Number(rate->median);
  return StrCat(Number(rate->median), " (", Number(rate->low), " to ", Number(rate->high), ")");
}

std::vector<std::string> QualityTexts(const ReportParts& parts, const Cell& cell, const std::string& contender) {
  std::vector<std::string> texts;
  const Record* quality = QualityOf(parts.journal, cell.share, contender);
  const bool exact = IsExact(parts.journal, cell, contender);
  for (const Column& column : kQualityColumns) {
    const bool measured = !exact && quality != nullptr && quality->figures.contains(column.figure);
    texts.push_back(exact ? "exact" : measured ? column.text(quality->figures.at(column.figure)) : "");
  }
  return texts;
}

// Columns that nobody has a figure for, as energy on many machines, are left out.
std::vector<const Column*> ColumnsOf(const ReportParts& parts, const Cell& cell) {
  std::vector<const Column*> columns;
  for (const Column& column : kSpeedColumns) {
    const bool any = std::ranges::any_of(parts.contenders, [&](const Contender& contender) {
      return SpreadOf(parts.journal, cell, contender.name(), column.figure).has_value();
    });
    if (any) columns.push_back(&column);
  }
  return columns;
}

std::string CellTable(const ReportParts& parts, const Cell& cell) {
  const std::vector<const Column*> columns = ColumnsOf(parts, cell);
  const uint64_t budget = parts.bench.budgets.at(cell.share);
  const std::string cache = cell.budget > 0 ? "as the budget leaves it" : StrCat(cell.share, " % of the experts");
  std::string text = StrCat("### Cache ", cache, ", disk: ", cell.disk, "\n\nMemory budget ",
                            Megabytes(static_cast<double>(budget)), " MB, process limit ",
                            Megabytes(static_cast<double>(budget + kBesideBudgetBytes)), " MB.\n\n| preset | decode, tokens/s |");
  for (const Column* column : columns) text += StrCat(" ", column->title, " |");
  for (const Column& column : kQualityColumns) text += StrCat(" ", column.title, " |");
  text += "\n|";
  for (size_t i = 0; i < 2 + columns.size() + std::size(kQualityColumns); ++i) text += "---|";
  std::string not_run;
  for (const Contender& contender : parts.contenders) {
    const std::string name = contender.name();
    if (const std::string why = WhyNot(parts, cell, name); !why.empty()) {
      not_run += StrCat("- ", name, ": not run: ", why, "\n");
      continue;
    }
    if (TurnsOf(parts.journal, cell, name).empty()) continue;
    std::vector<std::string> row = {name, RateText(parts, cell, name)};
    for (const Column* column : columns) {
      const auto spread = SpreadOf(parts.journal, cell, name, column->figure);
      row.push_back(spread ? column->text(spread->median) : "");
    }
    std::ranges::copy(QualityTexts(parts, cell, name), std::back_inserter(row));
    text += StrCat("\n| ", absl::StrJoin(row, " | "), " |");
  }
  return StrCat(text, "\n", not_run.empty() ? "" : "\n", not_run, "\n");
}

std::string TargetTable(const std::vector<TargetResult>& targets) {
  std::string text = "### What to reach\n\n| decode rates | cell | reach | measured | |\n|---|---|---|---|---|\n";
  for (const TargetResult& target : targets) {
    const std::string measured = target.ratio ? StrCat(Number(target.ratio->median), " (", Number(target.ratio->low), " to ",
                                                       Number(target.ratio->high), ")")
                                              : "not measured";
    text += StrCat("| ", target.what, " | ", target.cell, " | ", Number(target.reach), " | ", measured, " | ",
                   !target.ratio  ? ""
                   : target.met() ? "met"
                                  : "missed",
                   " |\n");
  }
  return text;
}

Json CellJson(const ReportParts& parts, const Cell& cell, const std::string& contender) {
  Json json{{"share", cell.share}, {"disk", cell.disk}, {"contender", contender}};
  if (const std::string why = WhyNot(parts, cell, contender); !why.empty()) {
    json["not_run"] = why;
    return json;
  }
  Json turns = Json::array();
  Figures medians;
  for (const Record* turn : TurnsOf(parts.journal, cell, contender)) {
    turns.push_back(turn->figures);
    for (const auto& [figure, value] : turn->figures) medians[figure] = SpreadOf(parts.journal, cell, contender, figure)->median;
  }
  json["median"] = medians;
  json["turns"] = turns;
  if (IsExact(parts.journal, cell, contender)) {
    json["quality"] = "exact";
  } else if (const Record* quality = QualityOf(parts.journal, cell.share, contender)) {
    json["quality"] = quality->figures;
  }
  return json;
}

}  // namespace

std::optional<Spread> SpreadOf(const SystemsJournal& journal, const Cell& cell, const std::string& contender,
                               const std::string& figure) {
  std::vector<double> values;
  for (const Record* turn : TurnsOf(journal, cell, contender)) {
    if (const auto found = turn->figures.find(figure); found != turn->figures.end()) values.push_back(found->second);
  }
  if (values.empty()) return std::nullopt;
  return SpreadOfValues(std::move(values));
}

bool IsExact(const SystemsJournal& journal, const Cell& cell, const std::string& contender) {
  const auto exact = SpreadOf(journal, cell, contender, "exact");
  return exact && exact->low == 1;
}

std::optional<Spread> RatioOf(const SystemsJournal& journal, const Cell& cell, const std::string& ours,
                              const std::string& theirs) {
  std::vector<double> ratios;
  for (const Record* turn : TurnsOf(journal, cell, ours)) {
    RecordKey key = turn->key;
    key.contender = theirs;
    const Record* other = journal.Find(key);
    if (other != nullptr && turn->figures.contains(kRate) && other->figures.contains(kRate)) {
      ratios.push_back(turn->figures.at(kRate) / other->figures.at(kRate));
    }
  }
  if (ratios.empty()) return std::nullopt;
  return SpreadOfValues(std::move(ratios));
}

Json ReportJson(const ReportParts& parts) {
  Json budgets = Json::array();
  for (const auto& [share, bytes] : parts.bench.budgets) {
    budgets.push_back({{"share", share},
                       {"memory_budget_bytes", bytes},
                       {"process_limit_bytes", bytes + kBesideBudgetBytes},
                       {"reference_expert_bytes", parts.bench.reference_expert_bytes()}});
  }
  Json cells = Json::array();
  for (const Cell& cell : parts.cells) {
    for (const Contender& contender : parts.contenders) cells.push_back(CellJson(parts, cell, contender.name()));
  }
  Json targets = Json::array();
  for (const TargetResult& target : Targets(parts)) {
    Json row{{"what", target.what}, {"cell", target.cell}, {"reach", target.reach}, {"met", target.met()}};
    if (target.ratio) row.update({{"median", target.ratio->median}, {"low", target.ratio->low}, {"high", target.ratio->high}});
    targets.push_back(std::move(row));
  }
  return {{"run", parts.run}, {"budgets", budgets}, {"cells", cells}, {"ablations", AblationJson(parts)}, {"targets", targets}};
}

std::string ReportMarkdown(const ReportParts& parts) {
  std::string text;
  for (const Cell& cell : parts.cells) text += CellTable(parts, cell);
  text += AblationTables(parts);
  const std::vector<TargetResult> targets = Targets(parts);
  return targets.empty() ? text : text + TargetTable(targets);
}

}  // namespace moed
