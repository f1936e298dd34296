#include "tools/plan/all_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/version.h"
#include "core/expert/plan_reader.h"
#include "core/store/checksum.h"
#include "core/store/file_lock.h"
#include "core/store/file_write.h"
#include "core/store/store.h"
#include "tools/plan/evaluation_flags.h"

namespace moed {
namespace {

// One command of those that Planners() has, with what it is told beside store, text and file.
struct Step {
  std::string command;
  std::string file;  // in the folder
  std::vector<std::string> flags;
};

class AllPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    command.add_option("--out", folder_, "the folder to write into (default: STORE.plans)")->option_text("FOLDER");
    command
        .add_option("--shares", shares_, "percent of the experts, separated by commas: cache sizes that slots are divided for")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command.add_option("--loss-percent", loss_percent_, "of the widths: perplexity may grow by so much")
        ->check(CLI::Range(0.0, 1e6))
        ->option_text("P (default: 2)");
    command.add_flag("--force", force_, "remove what the folder holds of another store, text or setting, and make it anew");
  }

  absl::Status Run() override {
    if (folder_.empty()) folder_ = evaluation_.store + ".plans";
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) return InvalidArgument("--out ", folder_, ": ", error.message());
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(evaluation_.store));
    const std::vector<Step> steps = Steps(store->description());
    const absl::StatusOr<FileLock> lock = FileLock::Take(folder_ + "/made_of.lock");
    if (absl::IsUnavailable(lock.status())) return absl::UnavailableError(StrCat("another process is making plans in ", folder_));
    MOED_RETURN_IF_ERROR(lock.status());
    MOED_RETURN_IF_ERROR(ClaimFolder(*store, steps));
    std::vector<std::string> not_made;
    for (size_t i = 0; i < steps.size(); ++i) {
      std::fprintf(stderr, "[%zu of %zu] %s\n", i + 1, steps.size(), steps[i].file.c_str());
      const absl::Status status = RunStep(steps[i]);
      if (absl::IsAlreadyExists(status)) {
        std::fprintf(stderr, "%s is there already\n", PathOf(steps[i]).c_str());
      } else if (CannotBeMade(status)) {
        not_made.push_back(StrCat(steps[i].file, ": ", status.message()));
      } else if (!status.ok()) {
        return absl::Status(status.code(), StrCat(steps[i].file, ": ", status.message()));
      }
    }
    for (const std::string& why : not_made) std::printf("not made: %s\n", why.c_str());
    std::printf("%s: for bench/compare systems --plans\n", folder_.c_str());
    return absl::OkStatus();
  }

 private:
  // Of this store: one precision, a loss out of reach, a cache too small for one slot a layer. The others can be made.
  static bool CannotBeMade(const absl::Status& status) {
    return absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
  }

  std::string PathOf(const Step& step) const { return StrCat(folder_, "/", step.file); }

  // Afterwards every plan in the folder is of this store, text and setting, and stays so.
  absl::Status ClaimFolder(const StoreReader& store, std::span<const Step> steps) const {
    const std::string path = folder_ + "/made_of";
    MOED_ASSIGN_OR_RETURN(const std::string text, evaluation_.Contents());
    const uint64_t inputs = Checksum(StrCat(Version(), "\n", store.model_hash(), "\n", Checksum(text), "\n", evaluation_.tokens,
                                            "\n", evaluation_.window, "\n", loss_percent_));
    const std::string made_of = StrCat(absl::Hex(inputs, absl::kZeroPad16), "\n");
    if (ReadPlanFile(path).value_or("") == made_of) return absl::OkStatus();
    for (const std::filesystem::path& plan : PlansThere(steps)) {
      if (!force_) {
        return absl::AlreadyExistsError(StrCat(folder_, " holds plans of another store, text or setting; --force replaces them"));
      }
      std::error_code error;
      std::filesystem::remove(plan, error);
      if (error) return InvalidArgument("cannot remove ", plan.string(), ": ", error.message());
    }
    return ReplaceFile(
        path, [&](int fd, const std::string& partial) { return WriteAt(fd, partial, 0, std::as_bytes(std::span(made_of))); });
  }

  // Whatever shares their slots are divided for.
  std::vector<std::filesystem::path> PlansThere(std::span<const Step> steps) const {
    std::vector<std::filesystem::path> plans;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool slots = name.starts_with("slots-") && name.ends_with(".json");
      if (slots || std::ranges::find(steps, name, &Step::file) != steps.end()) plans.push_back(entry.path());
    }
    return plans;
  }

  std::vector<Step> Steps(const StoreDescription& description) const {
    std::vector<Step> steps = {{"dictionary", "paths", {}},
                               {"hobbit", "hobbit.json", {}},
                               {"fate", "fate.json", {}},
                               {"learn", "learned", {}},
                               {"widths", "widths.json", {"--loss-percent", StrCat(loss_percent_)}}};
    const uint64_t all_bytes = AllRecordBytes(description, kReferencePrecision);
    for (const int share : shares_) {
      const uint64_t budget = all_bytes / 100 * static_cast<uint64_t>(share);
      steps.push_back({"slots", StrCat("slots-", share, ".json"), {"--budget", StrCat(budget)}});
    }
    return steps;
  }

  absl::Status RunStep(const Step& step) const {
    const auto row = std::ranges::find(Planners(), step.command, &PlannerRow::name);
    const std::unique_ptr<Planner> planner = row->make();
    CLI::App app;
    planner->DefineFlags(app);
    std::vector<std::string> arguments = {evaluation_.store, evaluation_.text,           "--out",    PathOf(step),
                                          "--tokens",        StrCat(evaluation_.tokens), "--window", StrCat(evaluation_.window)};
    if (evaluation_.threads > 0) arguments.insert(arguments.end(), {"--threads", StrCat(evaluation_.threads)});
    if (evaluation_.cache_mib > 0) arguments.insert(arguments.end(), {"--cache-mib", StrCat(evaluation_.cache_mib)});
    arguments.insert(arguments.end(), step.flags.begin(), step.flags.end());
    std::ranges::reverse(arguments);  // as parse takes them
    try {
      app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
      return Internal(step.command, ": ", error.what());
    }
    return planner->Run();
  }

  EvaluationFlags evaluation_;
  std::string folder_;
  bool force_ = false;
  // What the preset keeps beside takes a little of 10, 25, 50 and 75 %.
  std::vector<int> shares_ = {8, 23, 48, 73};
  double loss_percent_ = 2;
};

}  // namespace

std::unique_ptr<Planner> MakeAllPlanner() { return std::make_unique<AllPlanner>(); }

}  // namespace moed
