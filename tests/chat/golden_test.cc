// Small templates that use every construct, against what Python's jinja2 makes of them (make_golden.py).
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/chat/filters.h"
#include "core/chat/json.h"
#include "core/chat/template.h"
#include "core/chat/tests.h"
#include "tests/file_text.h"
#include "tests/paths.h"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

Value Golden() {
  const auto golden = ValueFromJson(ReadFileText(SourcePath("tests/chat/data/golden.json.xz")));
  EXPECT_TRUE(golden.ok()) << golden.status();
  return golden.ok() ? *golden : MakeDict({});
}

RenderOptions AtNoon() {
  RenderOptions options;  // 2026-01-31T12:00:00, a Saturday
  options.now.tm_year = 126;
  options.now.tm_mday = 31;
  options.now.tm_hour = 12;
  options.now.tm_wday = 6;
  options.now.tm_yday = 30;
  return options;
}

// Jinja has them, this engine refuses them by line and name.
const std::set<std::string> kRefusedHere = {
    "{{ 'é'|urlize }}",
    "{{ s|pprint }}",
    "{{ 'a'.encode('utf8') }}",
    "{{ lipsum() }}",
    "{% block a %}x{% endblock %}",
    "{% include 'a' %}",
    "{% extends 'a' %}",
    "{% autoescape true %}{% endautoescape %}",
    "{% import 'a' as b %}",
};

TEST(ChatGolden, EveryTemplateGivesWhatPythonGives) {
  const Value golden = Golden();
  const Value& variables = *golden.dict().Find("variables"sv);
  const auto& cases = golden.dict().Find("cases"sv)->items();
  ASSERT_GT(cases.size(), 600u);
  for (const Value& one : cases) {
    const std::string& source = one.dict().Find("template"sv)->text();
    SCOPED_TRACE(source);
    const auto parsed = Template::Parse(source);
    if (one.dict().Find("refused"sv) != nullptr || kRefusedHere.count(source) > 0) {
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(parsed.status().message().substr(0, 5), "line ");
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto text = parsed->Render(variables, AtNoon());
    if (const Value* words = one.dict().Find("error"sv)) {
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(text.status().message()), words->text());
    } else {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(text->text, one.dict().Find("text"sv)->text());
    }
  }
}

// Every row of the tables has a case at least.
TEST(ChatGolden, EveryFilterAndTestHasACase) {
  const Value golden = Golden();
  std::string all;
  for (const Value& one : golden.dict().Find("cases"sv)->items()) all += one.dict().Find("template"sv)->text() + "\n";
  const auto has = [&all](std::string_view before, std::string_view name) {
    for (size_t at = all.find(name); at != std::string::npos; at = all.find(name, at + 1)) {
      if (at >= before.size() && all.substr(at - before.size(), before.size()) == before) return true;
    }
    return false;
  };
  for (const std::string_view name : FilterNames()) EXPECT_TRUE(has("|", name) || has("| ", name)) << name;
  for (const std::string_view name : TestNames())
    EXPECT_TRUE(has("is ", name) || has("select('", name) || has("'", name)) << name;
}

}  // namespace
}  // namespace moed::chat
