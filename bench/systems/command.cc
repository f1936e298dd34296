// moe-bench systems: every preset on the same model, budgets, disk and prompts, through the real daemon.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/subcommand.h"
#include "bench/systems/cells.h"
#include "bench/systems/journal.h"
#include "bench/systems/quality.h"
#include "bench/systems/recorded.h"
#include "bench/systems/report.h"
#include "bench/systems/setup.h"
#include "bench/systems/turn.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kMaxContext = 256;
constexpr double kQualitySeconds = 300;  // of scoring as answers
constexpr double kPromptQualitySeconds = 30;
constexpr int kQualityTokens = 2048;
constexpr double kStartSeconds = 1;  // of a daemon, about
constexpr char kHeldout[] = "models/tales-qwen/heldout.txt";

struct Options {
  std::string store, moed, moed_flags, memory_budget, recorded_routing;
  std::string presets = "all";
  std::vector<std::string> options;
  std::string plans;  // "": none
  CellChoice cells;
  BenchTexts texts{kHeldout, "", kHeldout, 0};
  std::string journal = "systems.jsonl", json, markdown;
  double learn_seconds = 60;
  double stop_after_seconds = 0;  // 0: never
};

// One thing to measure.
struct Unit {
  const Cell* cell;
  const Contender* contender;
  RecordKey key;
};

// What contenders learn before a share's first turn; turn by turn over all contenders, so that those of one turn ran at about the
// same time; then what they lose.
std::vector<Unit> PlanUnits(const std::vector<Cell>& cells, const std::vector<Contender>& contenders, bool scores) {
  std::vector<Unit> units;
  std::set<int> shares;
  for (const Cell& cell : cells) {
    const bool first = shares.insert(cell.share).second;
    for (const Contender& contender : contenders) {
      if (first && contender.learned) units.push_back({&cell, &contender, {"learn", cell.share, "native", contender.name(), 0}});
    }
    for (int turn = 0; turn < cell.protocol.turns; ++turn) {
      for (const Contender& contender : contenders) {
        units.push_back({&cell, &contender, {"speed", cell.share, cell.disk, contender.name(), turn}});
      }
    }
    if (!scores || cell.read_rate > 0) continue;
    for (const Contender& contender : contenders) {
      units.push_back({&cell, &contender, {"quality", cell.share, cell.disk, contender.name(), 0}});
    }
  }
  return units;
}

std::string TimeText(double seconds) {
  const auto whole = static_cast<int>(seconds + 0.5);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

// How long what is left will take: as the measurements of its kind and cell did, before there is one as long as it may.
class Forecast {
 public:
  explicit Forecast(const Options& options) : options_(options) {}

  double Limit(const Unit& unit) const {
    return kStartSeconds + (unit.key.kind == "speed"     ? unit.cell->protocol.seconds
                            : unit.key.kind == "quality" ? kQualitySeconds + kPromptQualitySeconds
                                                         : options_.learn_seconds);
  }
  void Add(const Unit& unit, double seconds) {
    Mean& mean = means_[GroupOf(unit)];
    mean.seconds += seconds;
    ++mean.count;
  }
  double Seconds(const Unit& unit) const {
    const auto found = means_.find(GroupOf(unit));
    return found == means_.end() ? Limit(unit) : found->second.seconds / found->second.count;
  }

 private:
  struct Mean {
    double seconds = 0;
    int count = 0;
  };
  static std::string GroupOf(const Unit& unit) { return StrCat(unit.key.kind, " ", unit.cell->name()); }

  const Options& options_;
  std::map<std::string, Mean> means_;
};

class Run {
 public:
  Run(const SystemsBench& bench, const Options& options, SystemsJournal& journal, std::vector<Unit> units)
      : bench_(bench), options_(options), journal_(journal), units_(std::move(units)), forecast_(options) {}

  absl::Status All() {
    std::fprintf(stderr, "%zu measurements, %zu of them left: at most %s\n", units_.size(), Left(),
                 TimeText(SecondsLeft()).c_str());
    for (size_t i = 0; i < units_.size(); ++i) {
      if (journal_.Find(units_[i].key) != nullptr) continue;
      if (options_.stop_after_seconds > 0 && seconds_ > options_.stop_after_seconds) {
        return absl::CancelledError(StrCat(measured_, " measurements made; the same command goes on"));
      }
      const auto start = SteadyClock::now();
      MOED_ASSIGN_OR_RETURN(const Record record, Measure(units_[i]));
      const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
      seconds_ += seconds;
      ++measured_;
      if (record.not_run.empty()) forecast_.Add(units_[i], seconds);
      MOED_RETURN_IF_ERROR(journal_.Add(record));
      Report(i, record);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Record> Measure(const Unit& unit) {
    Record record{unit.key, {}, ""};
    record.not_run = KnownReason(unit);
    if (!record.not_run.empty()) return record;
    auto figures = MeasureFigures(unit);
    // No program, or not what was learned: nothing can be measured.
    if (absl::IsNotFound(figures.status())) return figures.status();
    if (figures.ok()) {
      record.figures = *std::move(figures);
    } else {
      record.not_run = std::string(figures.status().message());
    }
    return record;
  }

  absl::StatusOr<Figures> MeasureFigures(const Unit& unit) {
    if (unit.key.kind == "learn") return Learn(bench_, *unit.contender, *unit.cell, options_.learn_seconds);
    if (unit.key.kind == "speed") return MeasureTurn(bench_, *unit.contender, *unit.cell, unit.key.turn);
    return Quality(unit);
  }

  // Who did not start to learn, or in the first turn, is not started again.
  std::string KnownReason(const Unit& unit) const {
    const RecordKey& key = unit.key;
    for (const RecordKey& earlier :
         {RecordKey{"learn", key.share, "native", key.contender, 0}, RecordKey{"speed", key.share, key.disk, key.contender, 0}}) {
      const Record* record = earlier == key ? nullptr : journal_.Find(earlier);
      if (record != nullptr && !record->not_run.empty()) return record->not_run;
    }
    return "";
  }

  size_t Left() const {
    return static_cast<size_t>(
        std::ranges::count_if(units_, [this](const Unit& unit) { return journal_.Find(unit.key) == nullptr; }));
  }
  double SecondsLeft() const {
    double seconds = 0;
    for (const Unit& unit : units_) {
      if (journal_.Find(unit.key) == nullptr && KnownReason(unit).empty()) seconds += forecast_.Seconds(unit);
    }
    return seconds;
  }

  absl::StatusOr<Figures> Quality(const Unit& unit) {
    const Record* speed = journal_.Find({"speed", unit.key.share, unit.key.disk, unit.key.contender, 0});
    const bool exact = speed != nullptr && speed->figures.contains("exact") && speed->figures.at("exact") == 1;
    if (exact) return Figures{{"exact", 1}};  // nothing is scored, so nothing else is said
    MOED_ASSIGN_OR_RETURN(Figures figures, QualityAs(ScoredAs::kAnswers, kQualitySeconds, unit));
    MOED_ASSIGN_OR_RETURN(const Figures prompts, QualityAs(ScoredAs::kPrompts, kPromptQualitySeconds, unit));
    for (const char* name : {"perplexity_ratio", "scored_tokens"}) {
      if (prompts.contains(name)) figures[StrCat("prompt_", name)] = prompts.at(name);
    }
    return figures;
  }

  absl::StatusOr<Figures> QualityAs(ScoredAs as, double seconds, const Unit& unit) {
    if (!references_.contains(as)) {
      MOED_ASSIGN_OR_RETURN(const std::vector<Contender> exactly, ParseContenders("auto@exact"));
      MOED_ASSIGN_OR_RETURN(references_[as], ScoreText(bench_, exactly[0], *unit.cell, as, 2 * seconds));
    }
    MOED_ASSIGN_OR_RETURN(const ScoredText text, ScoreText(bench_, *unit.contender, *unit.cell, as, seconds));
    return CompareQuality(references_.at(as), text);
  }

  void Report(size_t index, const Record& record) const {
    const auto value = [&](const char* name) { return record.figures.contains(name) ? record.figures.at(name) : 0; };
    std::string outcome;
    if (!record.not_run.empty()) {
      outcome = StrCat("not run: ", record.not_run);
    } else if (record.key.kind == "speed") {
      outcome = StrCat(value("decode_tokens_per_second"), " tokens/s, prefill ", value("prefill_tokens_per_second"));
    } else if (record.key.kind == "quality") {
      outcome = value("exact") == 1 ? "exact" : StrCat("perplexity ", value("perplexity"), ", KL ", value("kl"));
    } else {
      outcome = StrCat(value("learned_tokens"), " tokens in ", value("learned_seconds"), " s");
    }
    std::fprintf(stderr, "[%zu of %zu, about %s left] %s, %s, %s %d: %s\n", index + 1, units_.size(),
                 TimeText(SecondsLeft()).c_str(), units_[index].cell->name().c_str(), record.key.contender.c_str(),
                 record.key.kind.c_str(), record.key.turn + 1, outcome.c_str());
  }

  const SystemsBench& bench_;
  const Options& options_;
  SystemsJournal& journal_;
  const std::vector<Unit> units_;
  Forecast forecast_;
  std::map<ScoredAs, ScoredText> references_;
  double seconds_ = 0;
  int measured_ = 0;
};

absl::Status Write(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) return Internal(path, ": cannot be written");
  return absl::OkStatus();
}

// A journal goes on only where all of this is the same: one program, one store (by the hash over its checksums), the same tokens.
Json DescribeRun(const SystemsBench& bench, const Options& options, const std::vector<Cell>& cells) {
  Json protocols = Json::array();
  for (const Cell& cell : cells) {
    const Protocol& p = cell.protocol;
    protocols.push_back({cell.name(), p.prompt_tokens, p.requests, p.warm_up_tokens, p.skipped_tokens, p.counted_tokens, p.turns,
                         p.seconds, bench.budgets.at(cell.share)});
  }
  Json given = Json::array();
  for (const GivenOption& one : bench.options) given.push_back({one.preset, one.option.name, one.option.value, one.share});
  return {{"moed", bench.program_hash},
          {"store", std::filesystem::path(bench.store).filename().string()},
          {"model_hash", bench.model.model_hash()},
          {"version", bench.version},
          {"expert_formats", std::vector<std::string>(bench.model.expert_formats().begin(), bench.model.expert_formats().end())},
          {"moed_flags", options.moed_flags},
          {"options", given},
          {"recorded_routing", bench.recorded != nullptr ? HashOfTrace(*bench.recorded) : ""},
          {"prompts", HashOfTexts(bench.prompts)},
          {"learning", HashOfTexts(bench.learning)},
          {"learn_seconds", options.learn_seconds},
          {"quality", HashOfTexts({{"", bench.quality_ids}})},
          {"quality_tokens", bench.quality_ids.size()},
          {"scored", "after a warm-up, as answers and as prompts"},
          {"cells", protocols}};
}

// Tokens that a recorded sequence needs so that no request plays it again from its begin.
size_t LongestAnswer(const std::vector<Cell>& cells) {
  int most = 0;
  for (const Cell& cell : cells) {
    const Protocol& protocol = cell.protocol;
    most = std::max({most, protocol.warm_up_tokens, protocol.skipped_tokens + 1 + protocol.counted_tokens});
  }
  return static_cast<size_t>(most);
}

// Beside --options. Where the folder lacks a plan, its preset does without, and the run says so.
absl::Status TakePlans(const std::string& folder, const std::vector<Cell>& cells, SystemsBench& bench) {
  if (folder.empty()) return absl::OkStatus();
  std::set<int> shares;
  for (const Cell& cell : cells) shares.insert(cell.share);
  MOED_ASSIGN_OR_RETURN(FoundPlans plans, FindPlans(folder, {shares.begin(), shares.end()}, bench.options));
  for (const std::string& file : plans.missing) {
    std::fprintf(stderr, "--plans %s has no %s: presets that take it do without\n", folder.c_str(), file.c_str());
  }
  bench.options.insert(bench.options.end(), plans.options.begin(), plans.options.end());
  return absl::OkStatus();
}

absl::Status RunSystems(const Options& options) {
  SystemsBench bench;
  bench.store = options.store;
  const bool recorded = !options.recorded_routing.empty();
  bench.program = options.moed.empty() ? StrCat(ProgramFolder(), "/", recorded ? "moed-recorded" : "moed") : options.moed;
  bench.max_context = kMaxContext;
  if (!options.moed_flags.empty()) bench.flags = absl::StrSplit(options.moed_flags, ' ', absl::SkipEmpty());
  MOED_ASSIGN_OR_RETURN(bench.options, ParseGivenOptions(options.options));
  MOED_ASSIGN_OR_RETURN(const std::vector<Contender> contenders, ParseContenders(options.presets));
  MOED_RETURN_IF_ERROR(CheckGivenOptions(contenders, bench.options));
  CellChoice choice = options.cells;
  choice.recorded = recorded;
  if (!options.memory_budget.empty()) {
    const absl::StatusOr<uint64_t> budget = ParseBytes(options.memory_budget);
    MOED_RETURN_IF_ERROR(Annotate(budget.status(), "--memory-budget"));
    choice.budget = *budget;
  }
  MOED_ASSIGN_OR_RETURN(const std::vector<Cell> cells, ChooseCells(choice));
  if (recorded) MOED_RETURN_IF_ERROR(ReadRecorded(options.recorded_routing, LongestAnswer(cells), bench));
  MOED_RETURN_IF_ERROR(TakePlans(options.plans, cells, bench));
  bench.learned_folder = options.journal + ".learned";
  BenchTexts texts = options.texts;
  if (texts.quality_tokens == 0) texts.quality_tokens = kQualityTokens;
  MOED_RETURN_IF_ERROR(Prepare(bench, texts, cells));
  const Json run = DescribeRun(bench, options, cells);
  MOED_ASSIGN_OR_RETURN(SystemsJournal journal, SystemsJournal::Open(options.journal, run));
  MOED_RETURN_IF_ERROR(Run(bench, options, journal, PlanUnits(cells, contenders, !recorded)).All());
  const ReportParts parts{bench, cells, contenders, journal, run};
  const std::string markdown = ReportMarkdown(parts);
  std::printf("%s", markdown.c_str());
  MOED_RETURN_IF_ERROR(Write(options.markdown, markdown));
  return Write(options.json, ReportJson(parts).dump(1) + "\n");
}

}  // namespace

std::function<absl::Status()> AddSystems(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--store", options->store, "the packed model; two precisions, or presets that need them are not run")
      ->required();
  app.add_option("--moed", options->moed, "the daemon's program (default: beside this one)");
  app.add_option("--moed-flags", options->moed_flags, "further flags of every daemon, separated by blanks");
  app.add_option("--presets", options->presets,
                 "all, ablations, or names separated by commas: PRESET[+learned][+NAME=VALUE...][@FIDELITY]")
      ->capture_default_str();
  app.add_option(
      "--options", options->options,
      "[PRESET:]NAME=VALUE,...: for every contender that knows the option; {share} in a value is the cell's; may be repeated");
  app.add_option("--plans", options->plans,
                 "folder of \"moed-plan all\": every contender gets what it takes of it, where --options does not say");
  app.add_option("--shares", options->cells.shares,
                 "percent of the experts in the cache, separated by commas (default: all cells)")
      ->delimiter(',');
  app.add_option("--memory-budget", options->memory_budget,
                 "one cell of this budget (8GB) on the native disk, with longer turns, instead of the others");
  app.add_option(
      "--recorded-routing", options->recorded_routing,
      "a trace that says which experts tokens go to, for stores of random weights: moed-recorded is run, prompts are the "
      "trace's, nothing is scored");
  app.add_option("--disks", options->cells.disks, "native, 550, 90, separated by commas (default: all cells)")->delimiter(',');
  app.add_option("--prompts", options->texts.prompts, "text that prompts are cut from: a file, or a folder with one kind a file")
      ->capture_default_str();
  app.add_option(
      "--learn-text", options->texts.learning,
      "text, as --prompts, that PRESET+learned learns from before its turns (default: the first half of --prompts, which "
      "are then cut from the second)");
  app.add_option("--learn-seconds", options->learn_seconds, "for how long, once for each cache size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--quality-text", options->texts.quality, "text that is scored")->capture_default_str();
  app.add_option("--quality-tokens", options->texts.quality_tokens, StrCat("of it, at most (default: ", kQualityTokens, ")"))
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--seconds", options->cells.seconds,
                 "of a turn on the native disk (default: 10, with --quick 6); others in proportion")
      ->check(CLI::Range(0.5, 60.0));
  app.add_option("--turns", options->cells.turns, "at most (default: 3, 3 and 1, with --quick 2)")->check(CLI::PositiveNumber);
  app.add_option("--stop-after", options->stop_after_seconds, "seconds of measuring after which no other measurement begins")
      ->check(CLI::PositiveNumber);
  app.add_option("--journal", options->journal, "finished measurements; the same command goes on where it was interrupted")
      ->capture_default_str();
  app.add_option("--json", options->json, "where all figures go");
  app.add_option("--markdown", options->markdown, "where the tables go, beside standard output");
  app.add_flag("--quick", options->cells.quick, "25 % on the native disk and at 550 MB/s, fewer tokens");
  return [options] { return RunSystems(*options); };
}

}  // namespace moed
