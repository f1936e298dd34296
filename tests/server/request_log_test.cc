// The request log: what a line says, and where the lines go.
#include "server/rpc/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/wire/refused_lines.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace request_log_test {

using ::testing::HasSubstr;

TEST(RequestLogTest, OneLineOfJsonWithCountsAndNoText) {
  RequestRecord record;
  record.id = "a\"b\n";
  record.method = Method::kGenerateStream;
  record.caller.peer = "unix:";
  record.duration_seconds = 1.5;
  auto line = nlohmann::json::parse(RequestLog::Line(record));
  EXPECT_EQ(line["code"], "OK");
  EXPECT_EQ(line["peer"], "unix:");
  EXPECT_EQ(line["duration_seconds"], 1.5);
  EXPECT_FALSE(line.contains("trace_id"));
  EXPECT_FALSE(line.contains("time"));
  EXPECT_FALSE(line.contains("prompt_tokens")) << "not admitted";
  record.admitted = true;
  record.status = record.finish.status = absl::DataLossError("checksum");
  record.reason = EndReason::kError;
  record.finish.prompt_tokens = 5;
  record.finish.timings.ttft_seconds = 0.25;
  record.caller.trace_id = "4bf9";
  const std::string text = RequestLog::Line(record, "2026-01-01T00:00:00.000Z");
  EXPECT_EQ(text.find('\n'), std::string::npos);
  line = nlohmann::json::parse(text);
  EXPECT_EQ(line["id"], "a\"b\n");
  EXPECT_EQ(line["method"], "GenerateStream");
  EXPECT_EQ(line["code"], "DATA_LOSS");
  EXPECT_EQ(line["reason"], "error");
  EXPECT_EQ(line["prompt_tokens"], 5);
  EXPECT_EQ(line["ttft_seconds"], 0.25);
  EXPECT_EQ(line["trace_id"], "4bf9");
  EXPECT_EQ(line["time"], "2026-01-01T00:00:00.000Z");
}

TEST(RequestLogTest, CallsWithoutAKnownTokenHaveFewLines) {
  const MemoryFolder folder;
  const std::string path = folder / "requests";
  FakeClock clock;
  {
    const auto log = RequestLog::Open(path, clock);
    ASSERT_TRUE(log.ok()) << log.status();
    RequestRecord refused, answered;
    refused.status = absl::UnauthenticatedError("a token is needed");
    for (int i = 0; i < 3 * RefusedLines::kLinesASecond; ++i) (*log)->Write(refused);
    (*log)->Write(answered);
    clock.AdvanceNanos(1'000'000'000);
    (*log)->Write(refused);
    (*log)->Write(refused);
  }
  std::ifstream file(path);
  std::vector<int> left_out;
  int answers = 0;
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    line["code"] == "OK" ? void(++answers) : left_out.push_back(line.value("refusals_left_out", 0));
  }
  EXPECT_EQ(answers, 1);
  ASSERT_EQ(left_out.size(), RefusedLines::kLinesASecond + 2u);
  EXPECT_THAT(std::span(left_out).first(RefusedLines::kLinesASecond), testing::Each(0));
  EXPECT_EQ(left_out[RefusedLines::kLinesASecond], 2 * RefusedLines::kLinesASecond);
  EXPECT_EQ(left_out.back(), 0);
}

TEST(RequestLogTest, AFileThatWasMovedAwayIsMadeAnew) {
  const MemoryFolder folder;
  const std::string path = folder / "requests", moved = folder / "requests.1";
  const auto lines = [](const std::string& file) {
    std::ifstream text(file);
    return std::count(std::istreambuf_iterator<char>(text), {}, '\n');
  };
  {
    const auto log = RequestLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    std::filesystem::rename(path, moved);
    EXPECT_TRUE((*log)->Reopen().ok());
    EXPECT_TRUE(std::filesystem::exists(path));
    (*log)->Write({});
  }
  EXPECT_EQ(lines(moved), 0);
  EXPECT_EQ(lines(path), 1);
  {
    const auto log = RequestLog::Open(path);
    std::filesystem::rename(path, moved);
    std::filesystem::create_directory(path);
    EXPECT_THAT(std::string((*log)->Reopen().message()), testing::HasSubstr(path));
    (*log)->Write({});
  }
  EXPECT_EQ(lines(moved), 2) << "where the lines went before";
}

TEST(RequestLogTest, MayBeOff) {
  const auto log = RequestLog::Open(std::string(kNoRequestLog));
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({});
  EXPECT_FALSE(std::filesystem::exists(kNoRequestLog));
}

}  // namespace request_log_test
}  // namespace moed
