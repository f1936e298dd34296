// Traces that are damaged: refused with the name of a file, or with every number inside its shape.
#include <lzma.h>

#include <filesystem>
#include <set>

#include "core/base/status.h"
#include "tests/base/damaged_bytes.h"
#include "tests/base/damaged_json.h"
#include "tests/replay/trace_files.h"

namespace moed {
namespace {

using testing::HasSubstr;

constexpr char kShape[] = R"({"layers":[0,1],"top_k":2,"experts":4,"expert_bytes":4096})";
constexpr char kFirstLine[] = R"({"first":0,"n":2,"category":"a","tokens":["x","y"]})";
constexpr char kSecondLine[] = R"({"first":2,"n":1,"token_ids":[7]})";

std::string Compressed(const std::string& contents) {
  std::string compressed(lzma_stream_buffer_bound(contents.size()), '\0');
  size_t bytes = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(contents.data()),
                                    contents.size(), reinterpret_cast<uint8_t*>(compressed.data()), &bytes, compressed.size()),
            LZMA_OK);
  compressed.resize(bytes);
  return compressed;
}

void ExpectInside(const RoutingTrace& trace) {
  const RoutingShape& shape = trace.shape;
  const auto k = static_cast<size_t>(shape.top_k);
  ASSERT_EQ(trace.experts.size(), trace.tokens() * shape.layers.size() * k);
  ASSERT_EQ(trace.probabilities.size(), trace.experts.size());
  for (size_t i = 0; i < trace.experts.size(); i += k) {
    const auto chosen = trace.experts.begin() + static_cast<std::ptrdiff_t>(i);
    EXPECT_EQ(std::set<uint16_t>(chosen, chosen + shape.top_k).size(), k);
    EXPECT_LT(*std::max_element(chosen, chosen + shape.top_k), shape.experts);
  }
  for (const TraceSequence& sequence : trace.sequences) {
    ASSERT_LE(sequence.first, trace.tokens());
    ASSERT_LE(sequence.tokens, trace.tokens() - sequence.first);
    for (size_t token = 0; token < sequence.tokens; ++token) EXPECT_GE(trace.token_ids[sequence.first + token].value(), 0);
  }
}

class DamagedTrace : public testing::Test {
 protected:
  DamagedTrace() {
    files_.index = StrCat(kFirstLine, "\n", kSecondLine, "\n");
    files_.Write(folder_);
    Put(kTraceShape, kShape);
  }
  void Put(std::string_view name, const std::string& contents) { std::ofstream(folder_ / name, std::ios::binary) << contents; }
  absl::Status Read() {
    TokenTexts texts;
    const auto trace = ReadRoutingTrace(folder_ / ".", std::nullopt, texts);
    if (trace.ok()) ExpectInside(*trace);
    return trace.status();
  }
  void ReadWith(std::string_view name, const std::string& contents, const std::string& what) {
    Put(name, contents);
    const absl::Status status = Read();
    if (status.ok()) return;
    EXPECT_THAT(Message(status), HasSubstr(folder_ / "./")) << name << ": " << what;
  }

  MemoryFolder folder_;
  TraceFiles files_;
};

TEST_F(DamagedTrace, UndamagedItIsRead) { EXPECT_TRUE(Read().ok()) << Read(); }

TEST_F(DamagedTrace, TruncatedFlippedAndGarbled) {
  const std::pair<std::string_view, std::string> files[] = {{kTraceExperts8, files_.experts},
                                                            {kTraceProbabilities, files_.probabilities},
                                                            {kTraceIndex, files_.index},
                                                            {kTraceShape, kShape}};
  for (const auto& [name, good] : files) {
    const auto read = [&, name = name](const std::string& damaged, size_t at) { ReadWith(name, damaged, std::to_string(at)); };
    ForEachTruncation(good, {}, read);
    ForEachFlip(good, {}, 8, read);
    ForGarbled(good, {}, 1000, 5, read);
    Put(name, good);
  }
}

TEST_F(DamagedTrace, HostileValuesInItsTexts) {
  const auto index = [&](const std::string& damaged, const std::string& what) { ReadWith(kTraceIndex, damaged + "\n", what); };
  ForEachHostileValue(kFirstLine, index);
  ForEachHostileValue(kSecondLine, index);
  Put(kTraceIndex, files_.index);
  ForEachHostileValue(kShape, [&](const std::string& damaged, const std::string& what) { ReadWith(kTraceShape, damaged, what); });
}

// Nothing of a damaged stream is taken.
TEST_F(DamagedTrace, CompressedNoByteIsUnguarded) {
  std::filesystem::remove(folder_ / kTraceExperts8);
  const std::string name = StrCat(kTraceExperts8, ".xz"), good = Compressed(files_.experts);
  const auto refused = [&](const std::string& damaged, size_t at) {
    Put(name, damaged);
    EXPECT_THAT(Message(Read()), HasSubstr(name)) << "byte " << at;
  };
  ForEachTruncation(good, {}, refused);
  ForEachFlip(good, {}, 2, refused);
  Put(name, good);
  EXPECT_TRUE(Read().ok()) << Read();
  // The shape too may be compressed.
  std::filesystem::rename(folder_ / kTraceShape, folder_ / "plain");
  Put(StrCat(kTraceShape, ".xz"), Compressed(kShape));
  EXPECT_TRUE(Read().ok()) << Read();
}

// Numbers that would be others if they were cut to fit, or fractions cut off.
TEST_F(DamagedTrace, NumbersAreNotCutToFit) {
  const std::tuple<std::string_view, std::string, const char*> cases[] = {
      {kTraceShape, R"({"layers":[0,4294967297],"top_k":2,"experts":4})", "a layer is 4294967297"},
      {kTraceShape, R"({"layers":[0,1.5],"top_k":2,"experts":4})", "a layer is 1.5"},
      {kTraceShape, R"({"layers":[0,1],"top_k":4294967298,"experts":4})", "top_k is 4294967298"},
      {kTraceShape, R"({"layers":[0,1],"top_k":2,"experts":1e300})", "experts is 1e+300"},
      {kTraceShape, R"({"layers":[0,1],"top_k":2,"experts":4,"expert_bytes":-1})", "expert_bytes is -1"},
      {kTraceIndex, R"({"first":0,"n":1.5,"tokens":["x"]})", "n is 1.5"},
      {kTraceIndex, R"({"first":18446744073709551615,"n":1,"tokens":["x"]})", "first is 18446744073709551615"},
      {kTraceIndex, R"({"first":0,"n":1,"token_ids":[4294967296]})", "token id is 4294967296"},
  };
  for (const auto& [name, contents, expected] : cases) {
    Put(kTraceShape, kShape);
    Put(name, contents);
    EXPECT_THAT(Message(Read()), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace moed
