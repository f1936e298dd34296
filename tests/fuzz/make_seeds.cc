// Writes the seeds of the targets whose files are binary into FOLDER/<target>/: make_seeds tests/fuzz/corpus. For when a format
// changes; seeds of texts are written by hand.
#include "core/expert/learning/activation_paths.h"
#include "core/expert/learning/learned_state.h"
#include "core/store/journal.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/expert/learned_parts.h"
#include "tests/fuzz/foreign_bytes.h"
#include "tests/store/small_store.h"

namespace moed::fuzz {
namespace {

constexpr uint64_t kModelHash = 0xab;
// The fixed header and the description of a store; what lies behind them the target makes up.
std::string StoreHeader(const std::string& path, const StoreDescription& description) {
  constexpr size_t kDescriptionBytesAt = 24;
  const std::string store = WriteSmallStore(path, description);
  return store.substr(0, 128 + GetAt<uint64_t>(store, kDescriptionBytesAt));
}

// As coded_segment reads it: the number of q2, 57 blocks.
std::string CodedSegment() {
  std::string plain = RandomBytes(57 * FormatOf(FormatId::kQ2).panel_block_bytes, 1);
  for (char& byte : plain) byte &= 7;
  std::string seed = {static_cast<char>(FormatId::kQ2), 7};
  for (const std::byte byte : EncodeSegment(FormatId::kQ2, Bytes(plain))) seed += static_cast<char>(byte);
  return seed;
}

void WritePaths(const std::string& path) {
  ActivationPaths paths(2, 3, 2, 0);
  const int32_t chosen[] = {0, 2};
  for (int i = 0; i < 5; ++i) paths.Add(1, {{0, 1}, {1, 2}}, chosen);
  MOED_CHECK(paths.Write(path, kModelHash).ok());
}

void WriteLearned(const std::string& path) {
  LearnedParts parts(4096);
  parts.Learn(60);
  MOED_CHECK(parts.Save({path, kModelHash, "parts"}).ok());
}

void WriteJournal(const std::string& path) {
  MOED_CHECK(Journal::Create(path, {.identity = 7, .entries = {{.piece = 1, .checksum = 2}, {.piece = 3, .checksum = 4}}}).ok());
}

int Main(const std::filesystem::path& corpus) {
  const Folder scratch;
  const auto seed = [&](const char* target, const char* name = "seed") {
    std::filesystem::create_directories(corpus / target);
    return (corpus / target / name).string();
  };
  const std::string store = scratch.path() + "/store";
  std::ofstream(seed("store_header"), std::ios::binary) << StoreHeader(store, SmallDescription());
  std::ofstream(seed("store_header", "mixed"), std::ios::binary) << StoreHeader(store, MixedDescription());
  std::ofstream(seed("store_header", "coded"), std::ios::binary) << StoreHeader(store, CodedDescription());
  std::ofstream(seed("coded_segment"), std::ios::binary) << CodedSegment();
  std::ofstream(seed("tokenizer_blob"), std::ios::binary)
      << CompileTokenizer(FileContents(corpus / "tokenizer_json" / "llama")).value();
  WritePaths(seed("activation_paths"));
  WriteLearned(seed("learned_state"));
  WriteJournal(seed("pack_journal"));
  return 0;
}

}  // namespace
}  // namespace moed::fuzz

int main(int argc, char** argv) {
  MOED_CHECK(argc == 2);
  return moed::fuzz::Main(argv[1]);
}
