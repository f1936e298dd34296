#include "bench/systems/setup.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/store/checksum.h"

namespace moed {
namespace {

constexpr std::string_view kReferencePreset = "load-on-demand-lru";
constexpr int kBudgetRounds = 8;           // the fixed parts change a little with the budget
constexpr size_t kMaxTextBytes = 1 << 20;  // of one kind: a request's limit

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return NotFound(path, ": cannot be read");
  std::string whole = text.str();
  if (whole.size() > kMaxTextBytes) whole.resize(whole.rfind('\n', kMaxTextBytes) + 1);
  if (whole.empty()) return InvalidArgument(path, ": no text");
  return whole;
}

absl::StatusOr<std::vector<int>> Tokenize(Client& client, const std::string& text) {
  moe::v1::TokenizeRequest request;
  request.set_text(text);
  request.mutable_options()->set_add_special_tokens(false);
  MOED_ASSIGN_OR_RETURN(const moe::v1::TokenizeResponse response, client.Tokenize(request));
  return std::vector<int>(response.token_ids().begin(), response.token_ids().end());
}

absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  if (files.empty()) return NotFound(path, ": no file in it");
  std::ranges::sort(files);
  return files;
}

absl::StatusOr<uint64_t> FixedBytes(Client& client) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::ServerInfo info, client.GetServerInfo());
  uint64_t fixed = 0;
  for (const moe::v1::MemoryPart& part : info.memory()) fixed += part.part() == "cache" ? 0 : part.bytes();
  return fixed;
}

absl::StatusOr<std::vector<PromptKind>> ReadKinds(Client& client, const std::string& path) {
  constexpr size_t kLeastTokens = 4;
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
  std::vector<PromptKind> kinds;
  for (const std::string& file : files) {
    MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    PromptKind kind{std::filesystem::path(file).filename().string(), {}};
    MOED_ASSIGN_OR_RETURN(kind.ids, Tokenize(client, text));
    if (kind.ids.size() < kLeastTokens) {
      return InvalidArgument(file, ": gives ", kind.ids.size(), " tokens, at least ", kLeastTokens, " are needed");
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

absl::Status ReadTexts(SystemsBench& bench, Client& client, const BenchTexts& texts) {
  MOED_ASSIGN_OR_RETURN(bench.prompts, ReadKinds(client, texts.prompts));
  if (texts.learning.empty()) {
    bench.learning = SplitForLearning(bench.prompts);
  } else {
    MOED_ASSIGN_OR_RETURN(bench.learning, ReadKinds(client, texts.learning));
  }
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(texts.quality));
  MOED_ASSIGN_OR_RETURN(bench.quality_ids, Tokenize(client, text));
  if (bench.quality_ids.size() < 2) return InvalidArgument(texts.quality, ": at least 2 tokens are needed");
  bench.quality_ids.resize(std::min<size_t>(bench.quality_ids.size(), static_cast<size_t>(texts.quality_tokens)));
  return absl::OkStatus();
}

// `bench.budgets` of the share is what is tried first.
absl::Status FindBudget(SystemsBench& bench, const Cell& cell) {
  const uint64_t wanted = bench.reference_expert_bytes() / 100 * static_cast<uint64_t>(cell.share);
  const uint64_t slack = wanted / 64;
  for (int round = 0; round < kBudgetRounds; ++round) {
    MOED_ASSIGN_OR_RETURN(const auto daemon, bench.StartDaemon({.preset = std::string(kReferencePreset)}, cell));
    MOED_ASSIGN_OR_RETURN(const uint64_t fixed, FixedBytes(daemon->client()));
    uint64_t& budget = bench.budgets[cell.share];
    const uint64_t right = fixed + wanted;
    const bool close = budget >= right && budget <= right + 2 * slack;
    budget = close ? budget : right + slack;
    if (close) break;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> PromptOf(const PromptKind& kind, int tokens, int index) {
  constexpr size_t kStride = 2999;
  const size_t count = std::min(kind.ids.size(), static_cast<size_t>(tokens));
  const size_t begin = static_cast<size_t>(index) * kStride % (kind.ids.size() - count + 1);
  return {kind.ids.begin() + static_cast<std::ptrdiff_t>(begin), kind.ids.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

std::vector<PromptKind> SplitForLearning(std::vector<PromptKind>& kinds) {
  std::vector<PromptKind> first_halves = kinds;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto half = static_cast<std::ptrdiff_t>(kinds[i].ids.size() / 2);
    first_halves[i].ids.resize(static_cast<size_t>(half));
    kinds[i].ids.erase(kinds[i].ids.begin(), kinds[i].ids.begin() + half);
  }
  return first_halves;
}

std::string SystemsBench::LearnedPath(const Contender& contender, int share) const {
  std::string name = contender.name();
  std::ranges::replace(name, '/', '_');  // of an option that is a path
  return StrCat(learned_folder, "/", name, "-", share, ".state");
}

absl::StatusOr<std::unique_ptr<Daemon>> SystemsBench::StartDaemon(const Contender& contender, const Cell& cell,
                                                                  const std::vector<std::string>& more) const {
  std::vector<NamedValue> values = OptionsOf(contender, options, cell.share);
  for (NamedValue& option : values) option.value = absl::StrReplaceAll(option.value, {{"{share}", StrCat(cell.share)}});
  std::vector<std::string> all = DaemonFlags(contender, values);
  all.insert(all.end(), {"--store", store, "--prompt-lookup", "off", "--max-running", "1", "--max-context", StrCat(max_context),
                         "--memory-budget", StrCat(budgets.at(cell.share))});
  if (recorded != nullptr) all.insert(all.end(), {"--recorded-routing", recorded_directory});
  if (cell.read_rate > 0) all.insert(all.end(), {"--read-rate", StrCat(cell.read_rate)});
  if (contender.learned) {
    const std::string learned = LearnedPath(contender, cell.share), copy = learned_folder + "/turn.state";
    std::error_code error;
    std::filesystem::copy_file(learned, copy, std::filesystem::copy_options::overwrite_existing, error);
    if (error) return NotFound(learned, ": ", error.message(), "; delete the journal, or name another one, to learn again");
    all.insert(all.end(), {"--learned-state", copy});
  }
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), flags.begin(), flags.end());
  return Daemon::Start(program, std::move(all));
}

std::string HashOfTexts(const std::vector<PromptKind>& kinds) {
  ChecksumStream checksum;
  for (const PromptKind& kind : kinds) {
    const uint64_t sizes[] = {kind.name.size(), kind.ids.size()};
    checksum.Update(std::as_bytes(std::span(sizes)));
    checksum.Update(std::as_bytes(std::span(kind.name)));
    checksum.Update(std::as_bytes(std::span(kind.ids)));
  }
  return StrCat(absl::Hex(checksum.Value(), absl::kZeroPad16));
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ChecksumStream checksum;
  for (std::array<char, 1 << 16> part; file;) {
    file.read(part.data(), part.size());
    checksum.Update(std::as_bytes(std::span(part.data(), static_cast<size_t>(file.gcount()))));
  }
  if (!file.eof()) return NotFound(path, ": cannot be read");
  return StrCat(absl::Hex(checksum.Value(), absl::kZeroPad16));
}

absl::Status Prepare(SystemsBench& bench, const BenchTexts& texts, const std::vector<Cell>& cells) {
  std::error_code error;
  const uint64_t store_bytes = std::filesystem::file_size(bench.store, error);
  if (error) return NotFound(bench.store, ": ", error.message());
  MOED_RETURN_IF_ERROR(CheckProgram(bench.program));
  MOED_ASSIGN_OR_RETURN(bench.program_hash, HashOfFile(bench.program));
  std::set<int> shares;
  for (const Cell& cell : cells) {
    if (!shares.insert(cell.share).second) continue;
    Cell probe = cell;
    probe.read_rate = 0;
    bench.budgets[cell.share] = store_bytes + kBesideBudgetBytes;  // holds everything: the model is there to look at
    if (shares.size() == 1) {
      MOED_ASSIGN_OR_RETURN(const auto daemon, bench.StartDaemon({.preset = std::string(kReferencePreset)}, probe));
      MOED_ASSIGN_OR_RETURN(bench.model, daemon->client().GetModelInfo());
      MOED_ASSIGN_OR_RETURN(const moe::v1::ServerInfo info, daemon->client().GetServerInfo());
      bench.version = info.version();
      if (bench.recorded == nullptr) MOED_RETURN_IF_ERROR(ReadTexts(bench, daemon->client(), texts));
    }
    if (cell.budget > 0) {
      bench.budgets[cell.share] = cell.budget;
    } else {
      MOED_RETURN_IF_ERROR(FindBudget(bench, probe));
    }
  }
  return absl::OkStatus();
}

}  // namespace moed
