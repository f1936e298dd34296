// What templates are refused for, how they fail, and the limits that hold whatever they do.
#include "core/chat/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/chat/error.h"
#include "core/chat/json.h"

namespace moed::chat {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::string> Rendered(std::string_view source, std::string_view variables = "{}",
                                     const RenderOptions& options = {}) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto values = ValueFromJson(variables);
  if (!values.ok()) return values.status();
  auto text = parsed->Render(*values, options);
  if (!text.ok()) return text.status();
  return std::move(text->text);
}

template <class Text>
std::string WordsOf(const absl::StatusOr<Text>& result) {
  return std::string(result.status().message());
}

TEST(ChatTemplate, RaisedWordsArriveAlone) {
  const auto raised = Rendered("\n\n{{ raise_exception('roles <must> alternate') }}");
  EXPECT_EQ(raised.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WordsOf(raised), "roles <must> alternate");
  EXPECT_TRUE(IsRaised(raised.status()));
  EXPECT_EQ(LineOf(raised.status()), 3);
  const auto failed = Rendered("{{ nope.x }}");
  EXPECT_EQ(WordsOf(failed), "'nope' is undefined");
  EXPECT_FALSE(IsRaised(failed.status()));
}

TEST(ChatTemplate, RefusalsNameLineAndConstruct) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"a\n{% include 'x' %}", "line 2: the tag 'include' is not supported"},
      {"{{ x|pprint }}", "line 1: the filter 'pprint' is not supported"},
      {"\n\n{{ x|frobnicate }}", "line 3: No filter named 'frobnicate'."},
      {"{{ 1 is frobnicated }}", "line 1: No test named 'frobnicated'."},
      {"{{ x.encode('utf8') }}", "line 1: the method 'encode' is not supported"},
      {"{{ lipsum() }}", "line 1: the function 'lipsum' is not supported"},
      {"{% frobnicate %}", "line 1: Encountered unknown tag 'frobnicate'."},
      {"{% if x %}\n\n", "line 2: Unexpected end of template. Looking for the tags 'elif', 'else', 'endif'."},
      {"\xff", "the chat template is not UTF-8 at byte 0"},
  };
  for (const auto& [source, words] : kRefused) EXPECT_EQ(WordsOf(Rendered(source)), words) << source;
}

TEST(ChatTemplate, UnknownNamesInBranchesAreListedAndFailWhereTheyAreReached) {
  const auto parsed = Template::Parse("{% if x %}\n{{ x|from_json }}{% endif %}{{ 'a' if not x else x is odder }}");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->UnknownNames(),
              testing::ElementsAre("line 2: No filter named 'from_json'", "line 2: No test named 'odder'"));
  EXPECT_EQ(parsed->Render(MakeDict({}))->text, "a");
  EXPECT_EQ(WordsOf(parsed->Render(*ValueFromJson(R"({"x": 1})"))), "No filter named 'from_json' found.");
}

TEST(ChatTemplate, EndlessWorkEnds) {
  RenderOptions options;
  options.limits.steps = 100'000;
  const char* kSources[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for a in range(1000) %}{% set ns.s = ns.s ~ ns.s[:1000000] %}{% endfor %}",
      "{% macro f(n) %}{% for i in range(10) %}{{ f(n + 1) }}{% endfor %}{% endmacro %}{{ f(0) }}",
  };
  for (const char* source : kSources) {
    const auto result = Rendered(source, "{}", options);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << source << result.status();
  }
}

TEST(ChatTemplate, DeepRecursionEnds) {
  const char* kSources[] = {
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f() %}{% call f() %}{% endcall %}{{ caller() }}{% endmacro %}{% call f() %}{% endcall %}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}",
      "{% set ns = namespace(a=[1]) %}{% for i in range(100000) %}{% set ns.a = ns.a|map('string') %}{% endfor %}",
  };
  for (const char* source : kSources) {
    const auto result = Rendered(source);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << source << result.status();
  }
}

TEST(ChatTemplate, TextAndValuesStayWithinTheirLimits) {
  RenderOptions options;
  options.limits.output_bytes = 1000;
  options.limits.memory_bytes = 1 << 20;
  const char* kSources[] = {
      "{% for i in range(1001) %}x{% endfor %}",
      "{% set a %}{% for i in range(1001) %}x{% endfor %}{% endset %}",
      "{% macro f() %}{% for i in range(600) %}x{% endfor %}{% endmacro %}{% for i in range(500) %}y{% endfor %}{{ f() }}",
      "{{ ('x' * 2000000)|length }}",
      "{{ ([1] * 100000)|length }}",
      "{{ ('x' * 1000).replace('x', 'y' * 10000)|length }}",
      "{{ ('a' * 1000)|list|join('b' * 10000)|length }}",
      "{{ 'x'.center(100000000)|length }}",
      "{{ '%100000000d' % 1 }}",
      "{{ '{:>900000}{:>900000}'.format(1, 2) }}",
      "{{ 'a\nb'|indent(100000000) }}",
      "{{ [1]|tojson(indent=100000000) }}",
      "{% set ns = namespace(a=[1, 2]) %}{% for i in range(30) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a|string }}",
      "{% set ns = namespace(a=[1]) %}{% for i in range(30) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
      "{{ range(100000)|list|length }}",
  };
  for (const char* source : kSources) {
    const auto result = Rendered(source, "{}", options);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << source << result.status();
  }
}

TEST(ChatTemplate, DeeplyNestedTextIsRefused) {
  const auto repeated = [](const std::string& what, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += what;
    return out;
  };
  for (const char* piece : {"(", "[", "-", "{1:", "not ", "a[", "1 if ", "f("}) {
    EXPECT_FALSE(Template::Parse("{{ " + repeated(piece, 100'000)).ok()) << piece;
  }
  EXPECT_FALSE(Template::Parse("{{ 1" + repeated(" + 1", 100'000) + " }}").ok());
  EXPECT_FALSE(Template::Parse("{{ a" + repeated(".b", 100'000) + " }}").ok());
  EXPECT_FALSE(Template::Parse("{{ a" + repeated("|e", 100'000) + " }}").ok());
  EXPECT_FALSE(Template::Parse(repeated("{% if a %}", 100'000)).ok());
  EXPECT_FALSE(Template::Parse("{% set " + repeated("(", 100'000)).ok());
}

TEST(ChatJson, IsReadAsPythonReadsIt) {
  EXPECT_EQ(*Rendered("{{ a|tojson }}", R"({"a": {"b": 1, "c": 18446744073709551616, "b": [1.0, -0.0, 1e2, null, true]}})"),
            R"({"b": [1.0, -0.0, 100.0, null, true], "c": 18446744073709551616})");
  const std::pair<const char*, const char*> kRefused[] = {
      {"{", "no JSON at byte"}, {"", "no JSON at byte"}, {R"(["\ud800"])", "no JSON at byte"}};
  for (const auto& [json, words] : kRefused)
    EXPECT_THAT(std::string(ValueFromJson(json).status().message()), HasSubstr(words)) << json;
  EXPECT_THAT(std::string(ValueFromJson(std::string(100'000, '[')).status().message()), HasSubstr("more than 100 deep"));
  EXPECT_THAT(std::string(ValueFromJson(std::string(60, '9')).status().message()), HasSubstr("more than 127 bits"));
}

}  // namespace
}  // namespace moed::chat
