// moectl render, run as a program: it needs no server.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/paths.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

struct Outcome {
  int code;
  std::string output, errors;
};

class RenderTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  Outcome Render(const std::string& source, const std::string& conversation, const std::string& more = "") const {
    const std::string output = folder_ / "output", errors = folder_ / "errors";
    const std::string command = BuiltProgram("moectl") + " render --template " + File("t.jinja", source) + " --conversation " +
                                File("c.json", conversation) + " " + more + " >" + output + " 2>" + errors + " </dev/null";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), Read(output), Read(errors)};
  }

 private:
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  const MemoryFolder folder_;
};

constexpr const char* kConversation = R"({"messages": [{"role": "user", "content": "hé\n"}], "bos_token": "<s>", "mine": 7})";

TEST_F(RenderTest, TheTextAloneIsPrinted) {
  const Outcome outcome = Render(
      "{{ bos_token }}{{ messages[0].content }}{{ mine }}{{ add_generation_prompt }}{{ tools is defined }}\n\n", kConversation);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "<s>hé\n7FalseFalse\n");
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(RenderTest, FlagsReachTheTemplate) {
  const Outcome outcome = Render("{{ add_generation_prompt }} {{ strftime_now('%A %Y-%m-%dT%H:%M:%S %j') }}", kConversation,
                                 "--add-generation-prompt --now 2026-01-31T12:00:05");
  EXPECT_EQ(outcome.output, "True Saturday 2026-01-31T12:00:05 031");
}

TEST_F(RenderTest, ErrorsAreTheirWordsAloneAndExitCode4) {
  const std::pair<const char*, const char*> kFailing[] = {
      {"{{ raise_exception('no <such> role') }}", "no <such> role\n"},
      {"{{ messages[0].x.y }}", "'dict object' has no attribute 'x'\n"},
  };
  for (const auto& [source, words] : kFailing) {
    const Outcome outcome = Render(source, kConversation);
    EXPECT_EQ(outcome.code, 4) << source;
    EXPECT_EQ(outcome.output, "") << source;
    EXPECT_EQ(outcome.errors, words);
  }
}

TEST_F(RenderTest, BadInputIsNamed) {
  const auto expect = [&](const Outcome& outcome, int code, const std::string& words) {
    EXPECT_EQ(outcome.code, code) << outcome.errors;
    EXPECT_NE(outcome.errors.find(words), std::string::npos) << outcome.errors;
  };
  expect(Render("\n{% include 'x' %}", kConversation), 4, "t.jinja: line 2: the tag 'include' is not supported");
  expect(Render("x", "[]"), 4, "c.json: expected an object with \"messages\", not list");
  expect(Render("x", "{"), 4, "c.json: no JSON at byte");
  expect(Render("x", kConversation, "--now noon"), 2, "--now 'noon': expected a time as 2026-01-31T12:00:00");
  expect(Render("x", kConversation, "--frobnicate"), 2, "--frobnicate");
}

}  // namespace
}  // namespace moed
