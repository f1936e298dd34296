// moe-bench systems: every preset on the same model, budgets, disk and prompts, through the real daemon.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_split.h"
#include "bench/moe_bench/subcommand.h"
#include "bench/moe_bench/systems_bench.h"
#include "bench/moe_bench/systems_cells.h"
#include "bench/moe_bench/systems_journal.h"
#include "bench/moe_bench/systems_quality.h"
#include "bench/moe_bench/systems_report.h"
#include "bench/moe_bench/systems_turn.h"
#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kMaxContext = 256;
constexpr double kQualitySeconds = 60;
constexpr char kHeldout[] = "models/tales-qwen/heldout.txt";

struct Options {
  std::string store, moed, moed_flags;
  std::string presets = "all";
  std::vector<std::string> options;
  std::vector<int> shares;
  BenchTexts texts{kHeldout, kHeldout, 0};
  std::string journal = "systems.jsonl", json, markdown;
  double seconds = 0;
  double stop_after_seconds = 0;  // 0: never
  bool quick = false;
};

// One thing to measure.
struct Unit {
  const Cell* cell;
  const Contender* contender;
  RecordKey key;
};

// Turn by turn over all contenders, so that those of one turn ran at about the same time; then what they lose.
std::vector<Unit> PlanUnits(const std::vector<Cell>& cells, const std::vector<Contender>& contenders) {
  std::vector<Unit> units;
  for (const Cell& cell : cells) {
    for (int turn = 0; turn < cell.protocol.turns; ++turn) {
      for (const Contender& contender : contenders) {
        units.push_back({&cell, &contender, {"speed", cell.share, cell.disk, contender.name(), turn}});
      }
    }
    if (cell.read_rate > 0) continue;
    for (const Contender& contender : contenders) {
      units.push_back({&cell, &contender, {"quality", cell.share, cell.disk, contender.name(), 0}});
    }
  }
  return units;
}

class Run {
 public:
  Run(const SystemsBench& bench, const Options& options, Journal& journal, std::vector<Unit> units)
      : bench_(bench), options_(options), journal_(journal), units_(std::move(units)) {}

  absl::Status All() {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (journal_.Find(units_[i].key) != nullptr) continue;
      if (options_.stop_after_seconds > 0 && seconds_ > options_.stop_after_seconds) {
        return absl::CancelledError(StrCat(measured_, " measurements made; the same command goes on"));
      }
      const auto start = SteadyClock::now();
      MOED_ASSIGN_OR_RETURN(Record record, Measure(units_[i]));
      seconds_ += std::chrono::duration<double>(SteadyClock::now() - start).count();
      ++measured_;
      Report(i, record);
      MOED_RETURN_IF_ERROR(journal_.Add(std::move(record)));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Record> Measure(const Unit& unit) {
    Record record{unit.key, {}, ""};
    record.not_run = KnownReason(unit);
    if (!record.not_run.empty()) return record;
    auto figures = unit.key.kind == "speed" ? MeasureTurn(bench_, *unit.contender, *unit.cell, unit.key.turn) : Quality(unit);
    if (absl::IsNotFound(figures.status())) return figures.status();  // no program: nothing can be measured
    if (figures.ok()) {
      record.figures = *std::move(figures);
    } else {
      record.not_run = std::string(figures.status().message());
    }
    return record;
  }

  // What did not start in the first turn is not started again.
  std::string KnownReason(const Unit& unit) const {
    RecordKey first = unit.key;
    first.kind = "speed";
    first.turn = 0;
    const Record* record = first == unit.key ? nullptr : journal_.Find(first);
    return record == nullptr ? "" : record->not_run;
  }

  absl::StatusOr<Figures> Quality(const Unit& unit) {
    const Record* speed = journal_.Find({"speed", unit.key.share, unit.key.disk, unit.key.contender, 0});
    const bool exact = speed != nullptr && speed->figures.contains("exact") && speed->figures.at("exact") == 1;
    if (!reference_) {
      MOED_ASSIGN_OR_RETURN(const std::vector<Contender> exactly, ParseContenders("auto@exact"));
      MOED_ASSIGN_OR_RETURN(reference_, ScoreText(bench_, exactly[0], *unit.cell, 2 * kQualitySeconds));
    }
    if (exact) return CompareQuality(*reference_, *reference_);
    MOED_ASSIGN_OR_RETURN(const ScoredText text, ScoreText(bench_, *unit.contender, *unit.cell, kQualitySeconds));
    return CompareQuality(*reference_, text);
  }

  void Report(size_t index, const Record& record) const {
    const auto value = [&](const char* name) { return record.figures.contains(name) ? record.figures.at(name) : 0; };
    std::string outcome;
    if (!record.not_run.empty()) {
      outcome = StrCat("not run: ", record.not_run);
    } else if (record.key.kind == "speed") {
      outcome = StrCat(value("decode_tokens_per_second"), " tokens/s, prefill ", value("prefill_tokens_per_second"));
    } else {
      outcome = StrCat("perplexity ", value("perplexity"), ", KL ", value("kl"));
    }
    size_t left = 0;
    for (const Unit& unit : units_) left += journal_.Find(unit.key) == nullptr ? 1 : 0;
    const double seconds = seconds_ / measured_ * static_cast<double>(left - 1);
    std::fprintf(stderr, "[%zu of %zu, about %d:%02d left] %s, %s, %s %d: %s\n", index + 1, units_.size(),
                 static_cast<int>(seconds) / 60, static_cast<int>(seconds) % 60, units_[index].cell->name().c_str(),
                 record.key.contender.c_str(), record.key.kind.c_str(), record.key.turn + 1, outcome.c_str());
  }

  const SystemsBench& bench_;
  const Options& options_;
  Journal& journal_;
  const std::vector<Unit> units_;
  std::optional<ScoredText> reference_;
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

std::vector<Cell> ChooseCells(const Options& options) {
  std::vector<Cell> cells = options.quick ? QuickCells() : AllCells();
  const std::set<int> shares(options.shares.begin(), options.shares.end());
  if (!shares.empty()) std::erase_if(cells, [&](const Cell& cell) { return !shares.contains(cell.share); });
  for (Cell& cell : cells) {
    if (options.seconds > 0) cell.protocol.seconds = options.seconds;
  }
  return cells;
}

// A journal goes on only where all of this is the same.
Json DescribeRun(const SystemsBench& bench, const Options& options, const std::vector<Cell>& cells) {
  Json protocols = Json::array();
  for (const Cell& cell : cells) {
    const Protocol& p = cell.protocol;
    protocols.push_back({cell.name(), p.prompt_tokens, p.requests, p.warm_up_tokens, p.skipped_tokens, p.counted_tokens, p.turns,
                         p.seconds, bench.budgets.at(cell.share)});
  }
  return {{"store", std::filesystem::path(bench.store).filename().string()},
          {"model_hash", bench.model.model_hash()},
          {"version", bench.version},
          {"expert_formats", std::vector<std::string>(bench.model.expert_formats().begin(), bench.model.expert_formats().end())},
          {"moed_flags", options.moed_flags},
          {"options", bench.options},
          {"quality_tokens", bench.quality_ids.size()},
          {"cells", protocols}};
}

absl::Status RunSystems(const Options& options) {
  SystemsBench bench;
  bench.store = options.store;
  bench.program = options.moed.empty() ? ProgramFolder() + "/moed" : options.moed;
  bench.max_context = kMaxContext;
  if (!options.moed_flags.empty()) bench.flags = absl::StrSplit(options.moed_flags, ' ', absl::SkipEmpty());
  MOED_ASSIGN_OR_RETURN(bench.options, ParseContenderOptions(options.options));
  MOED_ASSIGN_OR_RETURN(const std::vector<Contender> contenders, ParseContenders(options.presets));
  const std::vector<Cell> cells = ChooseCells(options);
  if (cells.empty()) return InvalidArgument("--shares: no cell has one of these; known are 10, 25, 50, 75, 100, with --quick 25");
  BenchTexts texts = options.texts;
  if (texts.quality_tokens == 0) texts.quality_tokens = options.quick ? 128 : 512;
  MOED_RETURN_IF_ERROR(Prepare(bench, texts, cells));
  const Json run = DescribeRun(bench, options, cells);
  MOED_ASSIGN_OR_RETURN(Journal journal, Journal::Open(options.journal, run));
  MOED_RETURN_IF_ERROR(Run(bench, options, journal, PlanUnits(cells, contenders)).All());
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
                 "all, or names separated by commas; NAME@exact, @bounded:X, @fast set what is asked")
      ->capture_default_str();
  app.add_option("--options", options->options, "PRESET:NAME=VALUE,... of one preset; may be repeated");
  app.add_option("--shares", options->shares, "percent of the experts in the cache, separated by commas (default: all cells)")
      ->delimiter(',');
  app.add_option("--prompts", options->texts.prompts, "text that prompts are cut from: a file, or a folder with one kind a file")
      ->capture_default_str();
  app.add_option("--quality-text", options->texts.quality, "text that is scored")->capture_default_str();
  app.add_option("--quality-tokens", options->texts.quality_tokens, "of it, at most (default: 512, with --quick 128)")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--seconds", options->seconds, "of a turn, in place of the cell's own")->check(CLI::Range(0.5, 60.0));
  app.add_option("--stop-after", options->stop_after_seconds, "seconds of measuring after which no other measurement begins")
      ->check(CLI::PositiveNumber);
  app.add_option("--journal", options->journal, "finished measurements; the same command goes on where it was interrupted")
      ->capture_default_str();
  app.add_option("--json", options->json, "where all figures go");
  app.add_option("--markdown", options->markdown, "where the tables go, beside standard output");
  app.add_flag("--quick", options->quick, "25 % on the native disk and at 550 MB/s, fewer tokens: within 20 minutes");
  return [options] { return RunSystems(*options); };
}

}  // namespace moed
