#include "bench/replay/routing_trace_reader.h"

#include <filesystem>

#include "tests/paths.h"
#include "tests/replay/trace_files.h"

namespace moed {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(RoutingTraceReader, ReadsWhatWasWritten) {
  MemoryFolder folder;
  TraceFiles().Write(folder);
  const auto trace = ReadTiny(folder);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->experts, ElementsAre(0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3));
  EXPECT_EQ(trace->probabilities.size(), 12u);
  EXPECT_THAT(trace->token_ids, ElementsAre(TokenId(0), TokenId(1), TokenId(0)));  // the same text is the same token
  ASSERT_EQ(trace->sequences.size(), 2u);
  EXPECT_EQ(trace->sequences[1].first, 2u);
  EXPECT_EQ(trace->sequences[1].category, "b");
  EXPECT_EQ(trace->replayed_tokens(), 3u);
  EXPECT_EQ(trace->At(1, 1), 6u);
}

TEST(RoutingTraceReader, TakesTheShapeFromItsFile) {
  MemoryFolder folder;
  TraceFiles().Write(folder);
  std::ofstream(folder / kTraceShape) << R"({"layers": [1, 3], "top_k": 2, "experts": 4, "expert_bytes": 77})";
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(folder / ".", std::nullopt, texts);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->shape.layers, ElementsAre(LayerId(1), LayerId(3)));
  EXPECT_EQ(trace->shape.expert_bytes, 77u);
}

TEST(RoutingTraceReader, ReadsTheRecordedPartOfGptOss) {
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(SourcePath("tests/replay/data"), std::nullopt, texts);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->shape.layers.size(), 24u);
  EXPECT_EQ(trace->replayed_tokens(), 597u);
  EXPECT_EQ(trace->sequences.size(), 3u);
}

TEST(RoutingTraceReader, OneDictionaryForSeveralTraces) {
  MemoryFolder folder;
  TraceFiles files;
  files.Write(folder);
  TokenTexts texts = {{"y", 0}};
  const auto trace = ReadRoutingTrace(folder / ".", TinyShape(), texts);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->token_ids, ElementsAre(TokenId(1), TokenId(0), TokenId(1)));
}

struct BadCase {
  const char* what;
  void (*spoil)(TraceFiles& files);
  std::vector<std::string> says;
};
const BadCase kBadCases[] = {
    {"truncated",
     [](TraceFiles& f) { f.experts.pop_back(); },
     {"experts.u8: 11 bytes", "truncated", "a token has 4 bytes", "shape"}},
    {"empty", [](TraceFiles& f) { f.experts.clear(); }, {"experts.u8: 0 bytes"}},
    {"expert out of range", [](TraceFiles& f) { f.experts[5] = 9; }, {"experts.u8: offset 5: expert 9", "0 to 3"}},
    {"expert twice", [](TraceFiles& f) { f.experts[5] = 1; }, {"experts.u8: offset 5: expert 1 twice"}},
    {"fewer probabilities", [](TraceFiles& f) { f.probabilities.pop_back(); }, {"probs.u8: 11 bytes", "12 are needed"}},
    {"index beyond the end",
     [](TraceFiles& f) { f.experts.resize(8), f.probabilities.resize(8); },
     {"index.jsonl: line 2", "tokens 2 to 2", "0 to 1"}},
    {"no JSON", [](TraceFiles& f) { f.index = "{\n"; }, {"index.jsonl: line 1"}},
    {"no sequence", [](TraceFiles& f) { f.index = "\n"; }, {"index.jsonl: no sequence"}},
    {"field missing", [](TraceFiles& f) { f.index = R"({"n": 1, "tokens": ["a"]})"; }, {"line 1", "first"}},
    {"no tokens", [](TraceFiles& f) { f.index = R"({"first": 0, "n": 1})"; }, {"line 1", "tokens", "token_ids"}},
    {"too few tokens",
     [](TraceFiles& f) { f.index = R"({"first": 0, "n": 2, "tokens": ["a"]})"; },
     {"1 tokens are named, n says 2"}},
    {"negative token",
     [](TraceFiles& f) { f.index = R"({"first": 0, "n": 1, "token_ids": [-4]})"; },
     {"line 1", "token id is -4"}},
    {"huge first", [](TraceFiles& f) { f.index = R"({"first": 9223372036854775807, "n": 1, "token_ids": [4]})"; }, {"line 1"}},
};

TEST(RoutingTraceReader, SaysWhatIsWrongAndWhere) {
  for (const BadCase& bad : kBadCases) {
    SCOPED_TRACE(bad.what);
    MemoryFolder folder;
    TraceFiles files;
    bad.spoil(files);
    files.Write(folder);
    const auto trace = ReadTiny(folder);
    ASSERT_FALSE(trace.ok());
    for (const std::string& part : bad.says) EXPECT_THAT(Message(trace.status()), HasSubstr(part));
  }
}

TEST(RoutingTraceReader, NamesMissingFiles) {
  for (const std::string_view missing : {kTraceExperts8, kTraceProbabilities, kTraceIndex}) {
    MemoryFolder folder;
    TraceFiles().Write(folder);
    std::filesystem::remove(folder / missing);
    const auto trace = ReadTiny(folder);
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Message(trace.status()), AllOf(HasSubstr(std::string(missing)), HasSubstr(".xz")));
  }
  TokenTexts texts;
  EXPECT_THAT(Message(ReadRoutingTrace("/nowhere/at/all", std::nullopt, texts).status()), HasSubstr("/nowhere/at/all"));
}

TEST(RoutingTraceReader, RefusesDamagedCompression) {
  MemoryFolder folder;
  TraceFiles().Write(folder);
  std::filesystem::remove(folder / kTraceExperts8);
  const std::string whole = FileContents(SourcePath("tests/replay/data/experts.u8.xz"));
  std::ofstream(folder / "experts.u8.xz", std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_THAT(Message(ReadTiny(folder).status()), AllOf(HasSubstr("experts.u8.xz"), HasSubstr("damaged or ends early")));
}

TEST(RoutingTraceReader, ATraceOfAnotherShapeIsNotReadAsGptOss) {
  MemoryFolder folder;
  TraceFiles().Write(folder);
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(folder / ".", std::nullopt, texts);
  EXPECT_THAT(Message(trace.status()),
              AllOf(HasSubstr("24 layers, top-4 of 32"), HasSubstr("shape.json"), HasSubstr("--layers")));
}

TEST(RoutingTraceReader, ChecksTheShape) {
  MemoryFolder folder;
  TraceFiles().Write(folder);
  const char* const kShapes[] = {"{", R"({"layers": [], "top_k": 1, "experts": 2})",
                                 R"({"layers": [1, 0], "top_k": 1, "experts": 2})",
                                 R"({"layers": [0], "top_k": 3, "experts": 2})", R"({"layers": [0], "top_k": 1, "experts": 0})"};
  for (const char* shape : kShapes) {
    std::ofstream(folder / kTraceShape) << shape;
    TokenTexts texts;
    const auto trace = ReadRoutingTrace(folder / ".", std::nullopt, texts);
    EXPECT_THAT(Message(trace.status()), HasSubstr("shape.json")) << shape;
  }
}

}  // namespace
}  // namespace moed
