#include "core/base/trace_parent.h"

#include <gtest/gtest.h>

#include <string>

namespace moed {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kWhole = "00-" + kTrace + "-00f067aa0ba902b7-01";

TEST(TraceParentTest, IsReadAndHasATrace) {
  EXPECT_EQ(ReadTraceParent(kWhole), kWhole);
  EXPECT_EQ(TraceIdOf(kWhole), kTrace);
  EXPECT_EQ(TraceIdOf(""), "");
}

TEST(TraceParentTest, OfALaterVersionItIsWhatThisOneKnows) {
  const std::string rest = kWhole.substr(2);
  EXPECT_EQ(ReadTraceParent("01" + rest), kWhole);
  EXPECT_EQ(ReadTraceParent("cc" + rest + "-what comes\nafter"), kWhole);
  EXPECT_EQ(ReadTraceParent("cc" + rest + "x"), "");
}

TEST(TraceParentTest, AnythingElseIsNone) {
  const std::string cases[] = {
      "",
      "00",
      kWhole.substr(0, 54),
      kWhole + "-",
      kWhole + "-01",
      "ff" + kWhole.substr(2),
      "0x" + kWhole.substr(2),
      "00-" + std::string(32, '0') + "-00f067aa0ba902b7-01",
      "00-" + kTrace + "-" + std::string(16, '0') + "-01",
      "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
      "00_" + kTrace + "-00f067aa0ba902b7-01",
      "00-" + kTrace + "-00f067aa0ba902b7-0\n",
      std::string(55, '-'),
      std::string(55, '\0'),
  };
  for (const std::string& text : cases) EXPECT_EQ(ReadTraceParent(text), "") << text;
}

}  // namespace
}  // namespace moed
