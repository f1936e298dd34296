// moed-pack: the command line of the converter.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/standard_output.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/store/checksum.h"
#include "core/store/coding.h"
#include "core/store/store.h"
#include "core/store/writer.h"
#include "tools/pack/budgets.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/estimate.h"
#include "tools/pack/family_list.h"
#include "tools/pack/json_text.h"
#include "tools/pack/layer_feedback.h"
#include "tools/pack/moments.h"
#include "tools/pack/packer.h"
#include "tools/pack/plan.h"
#include "tools/pack/report.h"
#include "tools/pack/unpackable.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/command_line.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr int kMaxDefaultThreads = 16;

constexpr const char* kDescription =
    "Packs a Mixture-of-Experts checkpoint, a Hugging Face folder or a GGUF file, into a store that moed serves.";
constexpr const char* kFormatsHelp =
    "An expert is stored once at each of --expert-formats; the first is the reference that exact mode computes with.\n"
    "Formats: f32, f16, bf16 keep the number format; q8, q4, q2 are blocks of 32 weights of 8, 4, 2 bits (8.5, 4.5, 3 with "
    "scales), q4a and q3 blocks of 4 and 3 bits with offsets (5, 4), q2p and q2s of 2.5 and 2 bits with small scales (3, 2.5); "
    "of 3 bits q2p loses least, with :gptq and --calibration still less. The last format is the low precision of what may lose "
    "something. "
    "keep takes what the checkpoint has: numbers in their "
    "own format, blocks of a GGUF, AWQ, GPTQ, FP8 or MXFP4 with their codes and scales.\n";
constexpr const char* kFooter =
    "A pack that was interrupted or killed is taken up by running the same command again; until it is whole there is only "
    "OUT.partial.\n\n"
    "Examples: moed-pack models/qwen3-30b-a3b qwen3.store --expert-formats q8,q4 --dry-run\n"
    "          moed-pack Qwen3-30B-A3B-Q8_0.gguf qwen3.store\n"
    "Exit status: 0 done, 1 failed, 2 wrong command line, 130 interrupted.";

struct Flags {
  std::string input;
  std::string output;
  std::vector<std::string> expert_formats;  // empty: DefaultEncoding
  std::string trunk_format;                 // likewise
  std::string calibration;                  // a file of moed-plan moments
  std::string chat_template;                // a file, or kNoTemplate; empty: the checkpoint's
  int threads = 0;
  int sync_mib = 64;
  int coded = 0;  // percent that coding has to save; 0 = not coded
  bool dry_run = false;
  bool force = false;
  bool list_families = false;

  std::string store;
  bool json = false;
};

void PrintError(const absl::Status& status) { std::fprintf(stderr, "moed-pack: %s\n", std::string(status.message()).c_str()); }

absl::StatusOr<std::vector<EncodingOrKeep>> ReadEncodings(const std::vector<std::string>& names) {
  std::vector<EncodingOrKeep> encodings;
  for (const std::string& name : names) {
    MOED_ASSIGN_OR_RETURN(encodings.emplace_back(), ParseEncodingOrKeep(name));
  }
  MOED_RETURN_IF_ERROR(CheckNoFormatTwice(encodings));
  return encodings;
}

std::string QuantizerLines() {
  std::string text = "Quantizers, chosen as FORMAT:QUANTIZER (a format alone is FORMAT:rtn):\n";
  for (const Quantizer& quantizer : Quantizers()) {
    std::string formats;
    for (const Format& format : Formats()) {
      if (Makes(quantizer.id, format.id)) formats += StrCat(formats.empty() ? "" : ", ", format.name);
    }
    text += StrCat("  ", quantizer.name, ": ", quantizer.summary, " (", formats, ")\n");
  }
  return text;
}

constexpr std::string_view kNoTemplate = "none";
constexpr uint64_t kMostTemplateBytes = 1 << 20;

absl::StatusOr<std::string> ReadTemplate(const std::string& path) {
  if (path == kNoTemplate) return std::string();
  return ReadText(path, kMostTemplateBytes);
}

int DefaultThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxDefaultThreads); }

// The budgets of the daemon with its defaults on this machine.
absl::Status PrintBudgets(const PackPlan& plan) {
  const ServingOptions options = ServingOptionsOfThisMachine();
  MOED_ASSIGN_OR_RETURN(const ServingBudgets budgets, FindServingBudgets(plan, options));
  std::printf("moed --memory-budget, with its defaults and %d threads:\n%s", options.threads, BudgetTable(plan, budgets).c_str());
  return absl::OkStatus();
}

absl::Status PrintDryRunJson(const Checkpoint& checkpoint, const PackPlan& plan, const Flags& flags, Executor& executor,
                             const ExpertMoments* moments) {
  DryRunFigures figures;
  MOED_ASSIGN_OR_RETURN(figures.budgets, FindServingBudgets(plan, ServingOptionsOfThisMachine()));
  MOED_ASSIGN_OR_RETURN(figures.encoding_seconds, EstimateSeconds(plan, executor, Clock::Real(), moments));
  figures.free_space = std::string(CheckFreeSpace(flags.output, plan.layout.file_bytes()).message());
  std::fputs(DryRunJson(checkpoint, plan, figures).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status DryRun(const Checkpoint& checkpoint, const PackPlan& plan, const Flags& flags, Executor& executor,
                    const ExpertMoments* moments) {
  if (flags.json) return PrintDryRunJson(checkpoint, plan, flags, executor, moments);
  std::printf("%s: %s, %zu tensors, %s\n\n%s", checkpoint.path().c_str(), plan.spec.family.c_str(), checkpoint.tensor_count(),
              FormatBytes(checkpoint.weight_bytes()).c_str(), SizeTable(plan.description, plan.layout).c_str());
  const uint64_t whole = plan.description.trunk_bytes + AllRecordBytes(plan.description, kReferencePrecision);
  std::printf("\nmemory: %s hold the trunk and every expert at the reference precision; keys, values and scratch come on top\n",
              FormatBytes(whole).c_str());
  MOED_RETURN_IF_ERROR(PrintBudgets(plan));
  std::fflush(stdout);
  MOED_ASSIGN_OR_RETURN(const double seconds, EstimateSeconds(plan, executor, Clock::Real(), moments));
  std::printf(
      "\nabout %s of encoding with %d threads, measured on a sample (a disk slower than %s/s takes longer)\n",
      SecondsText(seconds).c_str(), executor.threads(),
      FormatBytes(static_cast<uint64_t>(static_cast<double>(plan.layout.file_bytes()) / std::max(seconds, 1e-3))).c_str());
  const absl::Status space = CheckFreeSpace(flags.output, plan.layout.file_bytes());
  if (!space.ok()) std::printf("warning: %s\n", std::string(space.message()).c_str());
  return absl::OkStatus();
}

void ReportStart(const StoreWriter& writer, const std::string& output) {
  switch (writer.start()) {
    case StoreWriter::Start::kFresh:
      return;
    case StoreWriter::Start::kResumed:
      std::fprintf(stderr, "resuming %s.partial: %s are already there\n", output.c_str(),
                   FormatBytes(writer.resumed_bytes()).c_str());
      return;
    case StoreWriter::Start::kRestarted:
      std::fprintf(stderr, "starting over: %s.partial was left by other inputs, options or another version\n", output.c_str());
      return;
  }
}

// Null where nothing asks for it.
absl::StatusOr<std::unique_ptr<ExpertMoments>> ReadMoments(const Flags& flags, const PackEncodings& encodings,
                                                           const ModelSpec& spec) {
  if (encodings.trunk && encodings.trunk->quantizer == QuantizerId::kGptq) {
    return InvalidArgument("--trunk-format ", EncodingName(*encodings.trunk), ": gptq is for experts");
  }
  if (!NeedsMoments(encodings)) {
    if (flags.calibration.empty()) return nullptr;
    return InvalidArgument("--calibration is for formats of experts made by gptq, of which --expert-formats names none");
  }
  if (flags.calibration.empty()) {
    return InvalidArgument("--expert-formats: gptq wants --calibration FILE; moed-plan moments STORE TEXT makes one");
  }
  auto moments = std::make_unique<ExpertMoments>(spec);
  const absl::Status taken = moments->Take(flags.calibration, ExpertMoments::kWhole).status();
  MOED_RETURN_IF_ERROR(Annotate(taken, "--calibration wants what moed-plan moments STORE TEXT makes for this model"));
  return moments;
}

absl::Status RunPack(const Flags& flags) {
  std::error_code ignored;
  PackEncodings encodings;
  MOED_ASSIGN_OR_RETURN(encodings.experts, ReadEncodings(flags.expert_formats));
  if (std::filesystem::is_directory(flags.output, ignored))
    return InvalidArgument(flags.output, " is a folder, expected the name of a file");
  MOED_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(flags.input));
  if (!flags.chat_template.empty()) {
    MOED_ASSIGN_OR_RETURN(std::string chat_template, ReadTemplate(flags.chat_template));
    checkpoint.UseChatTemplate(std::move(chat_template));
  }
  encodings.trunk = DefaultEncoding(checkpoint);
  encodings.coded = flags.coded;
  if (encodings.experts.empty()) encodings.experts = {encodings.trunk};
  if (!flags.trunk_format.empty()) {
    MOED_ASSIGN_OR_RETURN(encodings.trunk, ParseEncodingOrKeep(flags.trunk_format));
  }
  MOED_ASSIGN_OR_RETURN(const PackPlan plan, MakePlan(checkpoint, encodings));
  if (checkpoint.chat().chat_template.empty() && flags.chat_template.empty()) {
    std::fprintf(stderr,
                 "%s has no chat template: prompts can be completed, conversations cannot be made into prompts "
                 "(--chat-template FILE gives one)\n",
                 flags.input.c_str());
  }
  for (const std::string& unknown : plan.unknown_in_template) {
    std::fprintf(stderr, "the chat template fails where it gets to %s\n", unknown.c_str());
  }
  const std::unique_ptr<Executor> executor = MakeThreadPool(flags.threads > 0 ? flags.threads : DefaultThreads());
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ExpertMoments> moments, ReadMoments(flags, encodings, plan.spec));
  if (flags.dry_run) return DryRun(checkpoint, plan, flags, *executor, moments.get());
  if (std::filesystem::exists(flags.output, ignored) && !flags.force) {
    return absl::AlreadyExistsError(StrCat(flags.output, " exists already; --force replaces it once the new store is whole"));
  }
  MOED_RETURN_IF_ERROR(CheckFreeSpace(flags.output, plan.layout.file_bytes()));
  const StoreWriterOptions options{
      .identity = moments != nullptr ? Checksum(StrCat(plan.identity, "\n", moments->hash())) : plan.identity,
      .sync_bytes = static_cast<uint64_t>(flags.sync_mib) << 20,
      .least_coding_gain = flags.coded};
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer, StoreWriter::Open(flags.output, plan.description, options));
  ReportStart(*writer, flags.output);
  Progress progress("packing", plan.piece_bytes(), writer->resumed_bytes(), stderr, Clock::Real());
  const absl::StatusOr<EncodingErrors> errors = Pack(plan, *writer, *executor, progress, moments.get());
  if (!errors.ok()) {
    const absl::Status& status = errors.status();
    progress.Break();
    if (IsUnpackable(status)) {  // no later run with these inputs gets further
      const absl::Status discarded = writer->Discard();
      if (discarded.ok()) return status;
      return absl::Status(status.code(), StrCat(status.message(), "; ", discarded.message()));
    }
    return absl::Status(status.code(), StrCat(status.message(), "; what is finished is kept in ", flags.output,
                                              ".partial: run the same command again to resume"));
  }
  progress.Finish();
  std::printf("%s: %s bytes\n%s", flags.output.c_str(), Grouped(writer->layout().file_bytes()).c_str(),
              ErrorTable(plan.description, *errors).c_str());
  return PrintBudgets(plan);
}

absl::Status ListFamilies(const Flags& flags) {
  std::fputs((flags.json ? FamiliesJson() : FamiliesText()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status RunInspect(const Flags& flags) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(flags.store));
  std::fputs((flags.json ? InspectJson(*store) : InspectText(*store)).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status RunVerify(const Flags& flags) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(flags.store));
  Progress progress("verifying", store->file_bytes(), 0, stderr, Clock::Real());
  const absl::Status status = store->VerifyAll([&](uint64_t done, uint64_t) {
    progress.Update(done);
    return !Interrupted();
  });
  if (!status.ok()) {
    progress.Break();
    return status;
  }
  progress.Finish();
  std::printf("%s: every checksum is right\n", flags.store.c_str());
  return absl::OkStatus();
}

// The usage lines of a program that is its own main command.
class UsageFormatter final : public CLI::Formatter {
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (app->get_parent() != nullptr) return Formatter::make_usage(app, name);
    return "Usage: moed-pack IN OUT [OPTIONS]\n       moed-pack IN OUT --dry-run [--json]\n       moed-pack --list-families "
           "[--json]\n"
           "       moed-pack inspect STORE [--json]\n       moed-pack verify STORE\n";
  }
  // Of a flag that may have a value, without that which it has by default.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = Formatter::make_option_name(option, positional);
    return name.substr(0, name.find('{'));
  }
};

// "" for a known encoding, else the message that lists them.
std::string CheckEncodingName(const std::string& text) { return std::string(ParseEncodingOrKeep(text).status().message()); }

void DefinePack(CLI::App& app, Flags& flags) {
  app.add_option(
         "IN", flags.input,
         "checkpoint: a folder with config.json, tokenizer.json and safetensors, or a GGUF file (of a split one, any part)")
      ->option_text(" ");
  app.add_option("OUT", flags.output, "the store to write")->option_text(" ");
  app.add_option("--expert-formats", flags.expert_formats, "formats of the experts, each with its quantizer, the reference first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CheckEncodingName)
      ->option_text("F[:Q],F[:Q],... (default: q8; of a GGUF, or quantised: keep)");
  app.add_option("--trunk-format", flags.trunk_format,
                 "format of all other matrices (norms and biases stay f32, routers as they are)")
      ->check(CheckEncodingName)
      ->option_text("F[:Q] (default: q8; of a GGUF, or quantised: keep)");
  app.add_flag(
         StrCat("--coded{", kUsualCodingGain, "}"), flags.coded,
         "code the experts losslessly: fewer bytes from a slow disk, more work for the processor; keeps as it is what coding "
         "makes less than N % smaller. Below 8, formats of 3 to 8 bits are coded too: for slow disks alone")
      ->check(CLI::Range(1, 99))
      ->option_text(StrCat("or --coded=N (default: ", kUsualCodingGain, ")"));
  app.add_option("--calibration", flags.calibration, "what moed-plan moments has collected of a text, for the quantizer gptq")
      ->option_text("FILE");
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja that makes a prompt of a conversation, instead of the checkpoint's; none: no conversations")
      ->option_text("FILE (or none)");
  app.add_option("--threads", flags.threads,
                 StrCat("threads that encode (default: one per processor, here ", DefaultThreads(), ")"))
      ->check(CLI::Range(1, kMaxThreads))
      ->option_text(StrCat("N (1..", kMaxThreads, ")"));
  app.add_option("--sync-mib", flags.sync_mib,
                 "write to the disk and note as finished every so many MiB; a killed pack loses no more")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N (default: 64)");
  app.add_flag("--dry-run", flags.dry_run, "only print exact sizes, the memory budgets of moed and an estimate of the time");
  app.add_flag("--force", flags.force, "replace OUT if it exists");
  app.add_flag("--list-families", flags.list_families, "print what can be packed: families, architectures, types");
  app.add_flag("--json", flags.json, "with --dry-run or --list-families: as JSON");
}

int Run(int argc, char** argv) {
  Flags flags;
  CLI::App app(kDescription, "moed-pack");
  app.formatter(std::make_shared<UsageFormatter>());
  app.set_version_flag("--version", StrCat("moed-pack ", BuildVersion()));
  app.set_help_flag("-h,--help", "print this help");
  DefinePack(app, flags);
  CLI::App* inspect = app.add_subcommand("inspect", "print what a store holds");
  inspect->add_option("STORE", flags.store, "a packed store")->required();
  inspect->add_flag("--json", flags.json, "as JSON");
  CLI::App* verify = app.add_subcommand("verify", "check every checksum of a store");
  verify->add_option("STORE", flags.store, "a packed store")->required();
  app.require_subcommand(0, 1);
  app.footer(StrCat(kFormatsHelp, QuantizerLines(), kFooter));  // last: subcommands inherit what is there when they are added
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty() && flags.output.empty() && !flags.list_families) {
      throw CLI::RequiredError("IN and OUT (or: inspect STORE, verify STORE)");
    }
    if (flags.json && app.get_subcommands().empty() && !flags.list_families && !flags.dry_run) {
      throw CLI::RequiresError("--json", "--list-families or --dry-run");
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "moed-pack: %s\nallowed: %s\n", error.what(), AllowedFlags(app).c_str());
    return kExitUsage;
  }
  CatchInterrupts();
  signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of the write, not death
  const absl::Status status = inspect->parsed()     ? RunInspect(flags)
                              : verify->parsed()    ? RunVerify(flags)
                              : flags.list_families ? ListFamilies(flags)
                                                    : RunPack(flags);
  if (status.ok()) return kExitOk;
  PrintError(status);
  return absl::IsCancelled(status) ? kExitInterrupted : kExitFailed;
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) { return moed::EndOfOutput("moed-pack", moed::Run(argc, argv)); }
