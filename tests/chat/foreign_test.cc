// Which bytes of a rendered text are foreign: those of the values that are, whatever the template does with them.
#include <gtest/gtest.h>

#include <string>

#include "core/chat/json.h"
#include "core/chat/template.h"

namespace moed::chat {
namespace {

// With what is foreign in brackets.
std::string Bracketed(const MarkedText& text) {
  std::string out;
  size_t at = 0;
  for (const ByteRange& range : text.foreign) {
    out += text.text.substr(at, range.begin - at) + "[" + text.text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + text.text.substr(at);
}

std::string Rendered(std::string_view source) {
  size_t room = SIZE_MAX;
  const auto foreign =
      ForeignFromJson(R"({"u": "ab c", "e": "", "l": ["x", "y"], "t": "é<b>\nz", "n": 7, "d": {"k": "v"}})", room);
  std::vector<Dict::Entry> variables = foreign->dict().entries();
  variables.emplace_back(MakeText("own"), MakeText("<s>"));
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const auto text = parsed->Render(MakeDict(std::move(variables)));
  return text.ok() ? Bracketed(*text) : std::string(text.status().message());
}

struct Case {
  const char* source;
  const char* text;
};

TEST(ForeignTest, PartsStayWhatTheyAre) {
  const Case kCases[] = {
      {"<a>{{ u }}</a>", "<a>[ab c]</a>"},
      {"{{ own }}{{ n }}{{ e }}", "<s>7"},
      {"{{ u }}{{ u }}", "[ab cab c]"},
      {"{{ own ~ u ~ own }}", "<s>[ab c]<s>"},
      {"{{ (own + u + own)[1:-1] }}", "s>[ab c]<s"},
      {"{{ (own + u)[::2] }}", "<>[bc]"},
      {"{{ u[1] }}{{ (own + u)[-1] }}{{ u|first }}{{ u|last }}", "[bcac]"},
      {"{{ ('  ' + u + own)|trim }}", "[ab c]<s>"},
      {"{{ (u + own).rstrip('>s') }}", "[ab c]<"},
      {"{{ (own + u).split('b')|join('|') }}", "<s>[a]|[ c]"},
      {"{{ (own + u).partition('a')|join('-') }}", "<s>-[a]-[b c]"},
      {"{{ u.split()[0] }}{{ (own ~ '\\n' ~ u).splitlines()|join }}", "[ab]<s>[ab c]"},
      {"{{ (own + u)|replace('s', u) }}", "<[ab c]>[ab c]"},
      {"{{ (own + u).replace('a', own) }}", "<s><s>[b c]"},
      {"{{ u.replace('', '-', 2) }}", "-[a]-[b c]"},
      {"{{ [own, u, own]|join(', ') }}", "<s>, [ab c], <s>"},
      {"{{ l|join(own) }}{{ own.join(l) }}{{ u.join([own, own]) }}", "[x]<s>[yx]<s>[y]<s>[ab c]<s>"},
      {"{{ (own ~ '\\n' ~ u)|indent(2, true) }}", "  <s>\n  [ab c]"},
      {"{{ (own + u + u)|truncate(8, true, '..', 0) }}", "<s>[ab ].."},
      {"{{ (own + u) * 2 }}", "<s>[ab c]<s>[ab c]"},
      {"{{ (own ~ u).center(11, '*') }}", "**<s>[ab c]**"},
      {"{% for c in own ~ u %}{{ c }}.{% endfor %}", "<.s.>.[a].[b].[ ].[c]."},
      {"{% set x %}<i>{{ u }}</i>{% endset %}{{ x }}", "<i>[ab c]</i>"},
      {"{% macro m(a) %}<i>{{ a }}</i>{{ caller() }}{% endmacro %}{% call m(u) %}{{ own }}{% endcall %}", "<i>[ab c]</i><s>"},
      {"{% filter trim %} <i>{{ u }} {% endfilter %}", "<i>[ab c]"},
      {"{{ u if u else own }}{{ e or own }}{{ missing|default(u) }}", "[ab c]<s>[ab c]"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]=[v]"},
      {"{{ (own ~ u).removeprefix('<s>') }}{{ (own ~ u).removesuffix(' c') }}", "[ab c]<s>[ab]"},
      {"{{ t[1:4] }}{{ (own ~ t).split('\\n')[0] }}", "[<b>]<s>[é<b>]"},
      {"{{ u|string }}{{ u|safe }}", "[ab cab c]"},
  };
  for (const auto& [source, text] : kCases) EXPECT_EQ(Rendered(source), text) << source;
}

// What is not followed byte by byte is foreign as a whole: nothing of a stranger's is ever the template's.
TEST(ForeignTest, WhatMixesIsForeignAsAWhole) {
  const Case kCases[] = {
      {"{{ (own ~ u)|upper }}{{ own|upper }}", "[<S>AB C]<S>"},
      {"{{ (own ~ u)|e }}{{ own|e }}", "[&lt;s&gt;ab c]&lt;s&gt;"},
      {"{{ d|tojson }}{{ [own]|tojson }}", "[{\"k\": \"v\"}][\"<s>\"]"},
      {"{{ l }}{{ [own] }}", "[['x', 'y']]['<s>']"},
      {"{{ '%s-%s' % (own, u) }}{{ '%s' % own }}", "[<s>-ab c]<s>"},
      {"{{ '{} {}'.format(own, u) }}{{ '{}'.format(own) }}", "[<s> ab c]<s>"},
      {"{{ u % () }}{{ u.format() }}", "[ab cab c]"},
      {"{{ u.title() }}{{ u|capitalize }}{{ u.zfill(6) }}{{ u.expandtabs() }}", "[Ab CAb c00ab cab c]"},
      {"{{ u|list|sort|join }}{{ u|unique|join }}{{ u|reverse }}", "[ abcab cc ba]"},
      {"{{ u|tojson|length }}{{ u|length }}{{ u == 'ab c' }}{{ 'b c' in u }}", "64TrueTrue"},
  };
  for (const auto& [source, text] : kCases) EXPECT_EQ(Rendered(source), text) << source;
}

}  // namespace
}  // namespace moed::chat
