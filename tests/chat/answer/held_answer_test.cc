// Answers that are held to calls by schema, or to formats: whatever their masks let through is what the parsers call well-formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "core/grammar/grammar.h"
#include "core/grammar/matcher.h"
#include "tests/chat/answer/goldens.h"
#include "tests/grammar/validator.h"

namespace moed::chat {
namespace {

using grammar::Json;
using grammar::Matcher;
using grammar::VocabularyTrie;
using ::testing::HasSubstr;

constexpr std::string_view kWeather = R"({"type": "object", "properties": {
    "place": {"type": "string"}, "unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": false},
    "ok": {"type": "boolean"}}, "required": ["place", "days"], "additionalProperties": false})";

AnswerRules Rules(bool must_call, std::string_view weather = kWeather) {
  AnswerRules rules;
  rules.must_call = must_call;
  rules.tools = {{"tools[0].parameters", "get_weather", std::make_shared<const Json>(Json::parse(weather))},
                 {"tools[1].parameters", "clock", nullptr}};
  return rules;
}

// Pieces of calls, and little else, so that what is drawn from them comes to an end.
constexpr std::string_view kMarkers[] = {"<think>",
                                         "</think>",
                                         "[THINK]",
                                         "[/THINK]",
                                         "<tool_call>",
                                         "</tool_call>",
                                         "<arg_key>",
                                         "</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "</parameter>",
                                         "</function>",
                                         "</invoke>",
                                         "<minimax:tool_call>",
                                         "</minimax:tool_call>",
                                         "<｜DSML｜tool_calls>",
                                         "</｜DSML｜tool_calls>",
                                         "<｜DSML｜function_calls>",
                                         "</｜DSML｜function_calls>",
                                         "</｜DSML｜parameter>",
                                         "<｜tool▁calls▁begin｜>",
                                         "<｜tool▁call▁begin｜>",
                                         "<｜tool▁sep｜>",
                                         "<｜tool▁call▁end｜>",
                                         "<｜tool▁calls▁end｜>",
                                         "<|tool_calls_section_begin|>",
                                         "<|tool_call_begin|>",
                                         "<|tool_call_argument_begin|>",
                                         "<|tool_call_end|>",
                                         "<|tool_calls_section_end|>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "[CALL_ID]",
                                         "<|python_tag|>",
                                         "<tool_calls>",
                                         "</tool_calls>",
                                         "<tool_sep>",
                                         "<tool_calls:opensource>",
                                         "</tool_calls:opensource>",
                                         "<tool_call:opensource>",
                                         "</tool_call:opensource>",
                                         "<tool_sep:opensource>",
                                         "<arg_key:opensource>",
                                         "</arg_key:opensource>",
                                         "<arg_value:opensource>",
                                         "</arg_value:opensource>",
                                         "<think:opensource>",
                                         "</think:opensource>",
                                         "<|python_start|>",
                                         "<|python_end|>",
                                         "<|tool_call_start|>",
                                         "<|tool_call_end|>",
                                         "<|START_THINKING|>",
                                         "<|END_THINKING|>",
                                         "<|START_ACTION|>",
                                         "<|END_ACTION|>",
                                         "<|START_TEXT|>",
                                         "<|END_TEXT|>",
                                         "<|think|>",
                                         "<|begin|>",
                                         "<|content|>",
                                         "<|tool_calls|>",
                                         "<|tool_call:begin|>",
                                         "<|tool_call:name|>",
                                         "<|tool_call:args|>",
                                         "<|tool_call:end|>",
                                         "<|calls|>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|\"|>",
                                         "<|channel>",
                                         "<channel|>",
                                         "<|tool_call|>",
                                         "<|channel|>",
                                         "<|message|>",
                                         "<|constrain|>",
                                         "<|start|>",
                                         "<|end|>"};

struct Vocabulary {
  explicit Vocabulary(bool special) : special(special) {
    for (int byte = 1; byte < grammar::kSpecialByte; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const std::string_view marker : kMarkers) {
      tokens.push_back((special ? std::string(1, static_cast<char>(grammar::kSpecialByte)) : "").append(marker));
    }
    std::vector<VocabularyTrie::Token> pairs;
    for (size_t i = 0; i < tokens.size(); ++i) pairs.emplace_back(tokens[i], static_cast<int32_t>(i));
    trie.emplace(std::move(pairs), static_cast<int>(tokens.size()));
  }
  static std::string Shown(std::string bytes) {
    std::erase(bytes, static_cast<char>(grammar::kSpecialByte));
    return bytes;
  }

  const bool special;
  std::vector<std::string> tokens;
  std::optional<VocabularyTrie> trie;
};

absl::StatusOr<Matcher> Held(std::string_view format, const AnswerRules& rules, const Vocabulary& vocabulary) {
  auto syntax = FormatNamed(format).hold(rules);
  if (!syntax.ok()) return syntax.status();
  auto compiled = grammar::Grammar::FromSyntax(*syntax, *vocabulary.trie);
  if (!compiled.ok()) return compiled.status();
  return Matcher(*std::move(compiled), *vocabulary.trie, 4 << 20);
}

// Some answer that the mask lets through; "" where it did not end soon.
std::string Drawn(Matcher& matcher, const Vocabulary& vocabulary, std::mt19937& random) {
  std::string answer;
  for (int length = 0; length < 1500; ++length) {
    const auto allowed = matcher.Allowed();
    EXPECT_TRUE(allowed.ok()) << allowed.status() << " after " << answer;
    if (!allowed.ok() || (matcher.MayEnd() && random() % 4 == 0)) return answer;
    std::vector<int32_t> letters, others;  // most letters are alike
    for (size_t word = 0; word < allowed->size(); ++word) {
      for (uint64_t bits = (*allowed)[word]; bits != 0; bits &= bits - 1) {
        const auto token = static_cast<int32_t>(word * 64 + std::countr_zero(bits));
        const char first = vocabulary.tokens[token][0];
        const bool plain =
            vocabulary.tokens[token].size() == 1 && (first < ' ' || (first >= '#' && first <= 'z' && first != ','));
        (plain ? letters : others).push_back(token);
      }
    }
    if (letters.empty() && others.empty()) return answer;
    const bool other = letters.empty() || (!others.empty() && random() % 2 == 0);
    const auto& among = other ? others : letters;
    const std::string& bytes = vocabulary.tokens[among[random() % among.size()]];
    EXPECT_TRUE(matcher.Accept(bytes).ok());
    answer += bytes;
  }
  return "";
}

struct Outcome {
  std::string text, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
};

Outcome Read(std::string_view format, const std::string& answer, bool reasoning_open, const Value& tools = Tools()) {
  const auto parser = FormatNamed(format).make({reasoning_open, tools});
  std::vector<AnswerPart> parts;
  parser->Add(answer, parts);
  parser->End(parts);
  Outcome outcome;
  for (const AnswerPart& part : parts) {
    if (part.kind != AnswerPart::Kind::kToolCall) {
      (part.kind == AnswerPart::Kind::kText ? outcome.text : outcome.reasoning) += part.text;
      continue;
    }
    if (!part.name.empty()) outcome.calls.emplace_back(part.name, "");
    outcome.calls.back().second += part.text;
  }
  return outcome;
}

bool HasCalls(const AnswerFormat& format) { return format.name != "plain" && format.name != "think"; }

// The drawn bytes of a string need not be UTF-8.
std::string Mended(std::string text) {
  for (char& c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) c = '?';
  }
  return text;
}

TEST(HeldAnswer, WhatMasksLetThroughIsWellFormedCalls) {
  std::mt19937 random(5);
  const Json schema = Json::parse(kWeather);
  for (const bool special : {false, true}) {
    const Vocabulary vocabulary(special);
    for (const AnswerFormat& format : AnswerFormats()) {
      if (!HasCalls(format)) continue;
      int whole = 0;
      for (int round = 0; round < 24; ++round) {
        AnswerRules rules = Rules(true);
        rules.reasoning_open = round % 2 == 1 && !format.reasoning_open.empty();
        auto matcher = Held(format.name, rules, vocabulary);
        ASSERT_TRUE(matcher.ok()) << matcher.status();
        const std::string answer = Vocabulary::Shown(Drawn(*matcher, vocabulary, random));
        if (answer.empty()) continue;
        ++whole;
        const Outcome read = Read(format.name, answer, rules.reasoning_open);
        EXPECT_EQ(read.text, "") << format.name << ": " << answer;
        EXPECT_FALSE(read.calls.empty()) << format.name << ": " << answer;
        for (const auto& [name, arguments] : read.calls) {
          const std::string json = Mended(arguments);
          EXPECT_TRUE(name == "clock" ? Json::accept(json) : grammar::IsValid(schema, json)) << format.name << ": " << answer;
        }
      }
      EXPECT_GE(whole, 6) << format.name;
    }
  }
}

TEST(HeldAnswer, TextStaysFreeAndCallsInItAreHeld) {
  const Vocabulary vocabulary(false);
  const auto follows = [&](std::string_view format, const AnswerRules& rules, std::string_view answer) {
    auto matcher = Held(format, rules, vocabulary);
    return matcher.ok() && matcher->Accept(answer).ok() && matcher->MayEnd();
  };
  const std::string good = R"(<tool_call>{"name": "get_weather", "arguments": {"place": "A", "days": 2}}</tool_call>)";
  const std::string bad = R"(<tool_call>{"name": "get_weather", "arguments": {"place": 1}}</tool_call>)";
  const AnswerRules free = Rules(false), must = Rules(true);
  EXPECT_TRUE(follows("hermes", free, "Just text < > </tool_call>"));
  EXPECT_TRUE(follows("hermes", free, "<think>a " + bad + "</think>Text " + good + good + " more"));
  EXPECT_FALSE(follows("hermes", free, "Text " + good + bad));
  EXPECT_FALSE(follows("hermes", must, "Text " + good));
  EXPECT_FALSE(follows("hermes", must, ""));
  EXPECT_TRUE(follows("hermes", must, "<think>a " + bad + "</think>\n\n" + good + "\n" + good));
  AnswerRules one = Rules(true);
  one.most_calls = 1;
  EXPECT_TRUE(follows("hermes", one, good));
  EXPECT_FALSE(follows("hermes", one, good + good));
  one.must_call = false;
  EXPECT_TRUE(follows("hermes", one, "a " + good + " b"));
  EXPECT_FALSE(follows("hermes", one, good + good));
  one.prompt_end = "<think>\n\n</think>";
  EXPECT_TRUE(follows("hermes", one, good));
  one.must_call = true;
  EXPECT_FALSE(follows("hermes", one, "<think>a</think>" + good)) << "the prompt has closed the reasoning";
  EXPECT_TRUE(follows("llama", free, "See {\"a\": 1}"));
  EXPECT_FALSE(follows("llama", free, "{\"name\": \"get_weather\", \"parameters\": {}}"));
  EXPECT_TRUE(follows("llama", free, "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"A\", \"days\": 2}}"));
  const std::string weather = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";
  const std::string thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  EXPECT_TRUE(follows("harmony", must, thought + weather + "{\"place\":\"A\",\"days\":1}"));
  EXPECT_FALSE(follows("harmony", must, thought + weather + "{\"place\":\"A\"}"));
  EXPECT_FALSE(follows("harmony", must, "<|channel|>final<|message|>no"));
  EXPECT_TRUE(follows("harmony", free, thought + "<|channel|>final<|message|>no"));
}

// What the reader takes for the end of a value is none of its text.
TEST(HeldAnswer, NoLineOfATextBeginsWithTheTagAfterIt) {
  const Vocabulary vocabulary(false);
  const auto holds = [&](std::string_view value) {
    auto matcher = Held("qwen-xml", Rules(true), vocabulary);
    return matcher.ok() && matcher->Accept("<function=clock>\n<parameter=a>\n").ok() && matcher->Accept(value).ok() &&
           matcher->Accept("\n</parameter>\n</function>").ok() && matcher->MayEnd();
  };
  EXPECT_TRUE(holds("ls <parameter=x> </function>\n<function"));
  EXPECT_FALSE(holds("ls\n<parameter=x>"));
  EXPECT_FALSE(holds("ls\n</function>"));
}

TEST(HeldAnswer, FormatsOfStringsAreHeldWithoutQuotesToo) {
  const Vocabulary vocabulary(true);
  const std::string schema = R"({"type": "object", "properties": {"on": {"type": "string", "format": "date"}}})";
  const auto holds = [&](std::string_view value) {
    auto matcher = Held("glm", Rules(true, schema), vocabulary);
    EXPECT_TRUE(matcher.ok()) << matcher.status();
    const auto special = [](std::string_view name) { return static_cast<char>(grammar::kSpecialByte) + std::string(name); };
    const std::string call = special("<tool_call>") + "get_weather\n" + special("<arg_key>") + "on" + special("</arg_key>") +
                             "\n" + special("<arg_value>") + std::string(value) + special("</arg_value>") + "\n" +
                             special("</tool_call>");
    return matcher.ok() && matcher->Accept(call).ok() && matcher->MayEnd();
  };
  EXPECT_TRUE(holds("2024-02-29"));
  EXPECT_FALSE(holds("2023-02-29"));
  EXPECT_FALSE(holds("tomorrow"));
}

// Markers that are tokens come as those.
TEST(HeldAnswer, MarkersAreTokensWhereTheVocabularyHasThem) {
  const Vocabulary vocabulary(true);
  const auto tokens = [](std::string_view text) {
    std::string bytes;
    while (!text.empty()) {
      const auto begins = [&](std::string_view marker) { return text.starts_with(marker); };
      const auto* const marker = std::find_if(std::begin(kMarkers), std::end(kMarkers), begins);
      const size_t size = marker == std::end(kMarkers) ? 1 : marker->size();
      if (marker != std::end(kMarkers)) bytes += static_cast<char>(grammar::kSpecialByte);
      bytes += text.substr(0, size);
      text.remove_prefix(size);
    }
    return bytes;
  };
  const std::pair<std::string_view, std::string_view> kAnswers[] = {
      {"kimi",
       "<think>a</think><|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>"},
      {"hy", "<tool_calls>\n<tool_call>clock<tool_sep>\n</tool_call>\n</tool_calls>"},
      {"glm", "<think>a</think><tool_call>clock\n</tool_call>"},
      {"command",
       "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"clock\", "
       "\"parameters\": {}}\n]<|END_ACTION|>"},
      {"solar",
       "<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>clock<|tool_call:args|>{}"
       "<|tool_call:end|>"},
      {"gemma4", "<|channel>thought\na<channel|><|tool_call>call:clock{a:<|\"|>b<|\"|>,c:[{\"d\":1}]}<tool_call|>"},
      {"lfm2", "<|tool_call_start|>[clock(a='b', c=[True, 'd']), clock()]<|tool_call_end|>"},
      {"granite", "<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]"},
      {"hunyuan", "<think>\n\n</think>\n<tool_calls>[{\"name\": \"clock\", \"arguments\": {}}]</tool_calls>"},
      {"llama4", "[clock(a=1), clock()]"},
  };
  for (const auto& [format, answer] : kAnswers) {
    auto matcher = Held(format, Rules(true), vocabulary);
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    EXPECT_TRUE(matcher->Accept(tokens(answer)).ok() && matcher->MayEnd()) << format;
  }
  auto solar = Held("solar", Rules(false), vocabulary);
  ASSERT_TRUE(solar.ok());
  EXPECT_TRUE(solar->Accept(tokens("<|think|>a<|end|><|begin|>assistant<|content|>It is 4.<|end|>")).ok() && solar->MayEnd());
}

TEST(HeldAnswer, AFormatBeginsAfterTheReasoning) {
  std::mt19937 random(6);
  const Vocabulary vocabulary(true);
  for (const AnswerFormat& format : AnswerFormats()) {
    int whole = 0;
    for (int round = 0; round < 6; ++round) {
      AnswerRules rules;
      rules.reasoning_open = round % 2 == 1 && !format.reasoning_open.empty();
      rules.text = grammar::Regex("[ab]{2,5}!");
      auto matcher = Held(format.name, rules, vocabulary);
      ASSERT_TRUE(matcher.ok()) << matcher.status();
      const std::string answer = Vocabulary::Shown(Drawn(*matcher, vocabulary, random));
      if (answer.empty()) continue;
      ++whole;
      EXPECT_THAT(Read(format.name, answer, rules.reasoning_open).text, ::testing::MatchesRegex("[ab]{2,5}!")) << format.name;
    }
    EXPECT_GE(whole, 3) << format.name;
  }
  AnswerRules both = Rules(false);
  both.text = grammar::Regex("yes");
  auto matcher = Held("hermes", both, vocabulary);
  ASSERT_TRUE(matcher.ok());
  EXPECT_TRUE(matcher->Accept("yes").ok() && matcher->MayEnd());
}

std::string ObjectOf(const std::string& properties) { return R"({"type": "object", "properties": {)" + properties + "}}"; }
std::string InArrays(int count, std::string schema) {
  for (int i = 0; i < count; ++i) schema = R"({"type": "array", "items": )" + schema + "}";
  return schema;
}
std::string InObjects(int count) {
  const std::string other = R"("b": {"type": "string"})";
  std::string schema = ObjectOf(other);
  for (int i = 1; i < count; ++i) schema = ObjectOf("\"a\": " + schema + ", " + other);
  return schema;
}
std::string OfManyProperties(int count) {
  std::string properties;
  for (int i = 0; i < count; ++i) properties += (i == 0 ? "\"p" : ", \"p") + std::to_string(i) + R"(": {"type": "integer"})";
  return ObjectOf(properties);
}

// Such schemas stand for masks of any size: 2 to the power of their depth, or the square of their properties.
TEST(HeldAnswer, WhatWouldTakeTooLargeAMaskIsRefusedAtOnce) {
  const Vocabulary vocabulary(true);
  const std::string integer = R"({"type": "integer"})";
  for (const std::string_view format : {"gemma4", "lfm2", "llama4"}) {
    for (const std::string& schema : {ObjectOf("\"x\": " + InArrays(24, integer)), ObjectOf("\"x\": " + InArrays(60, integer)),
                                      OfManyProperties(2000), ObjectOf("\"x\": " + OfManyProperties(2000)), InObjects(30)}) {
      AnswerRules rules = Rules(true, schema);
      const auto refused = Held(format, rules, vocabulary);
      // Objects within arguments are JSON where they cannot be otherwise.
      if (refused.ok()) continue;
      EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
      EXPECT_TRUE(rules.Loosen());
      EXPECT_TRUE(Held(format, rules, vocabulary).ok());
    }
    EXPECT_FALSE(Held(format, Rules(true, OfManyProperties(2000)), vocabulary).ok());
    for (const std::string& schema : {ObjectOf("\"x\": " + InArrays(5, integer)), OfManyProperties(10), InObjects(3)}) {
      EXPECT_TRUE(Held(format, Rules(true, schema), vocabulary).ok()) << format << ": " << schema;
    }
  }
}

constexpr std::string_view kTagged[] = {"qwen-xml", "glm", "minimax", "hy", "hy-open", "deepseek-dsml"};

// As generators of schemas write parameters that are values of a list, and others without a type.
constexpr std::string_view kReferring = R"({"type": "object", "$defs": {
    "Color": {"enum": ["red", "12", "true"], "title": "Color", "type": "string"}, "Day": {"type": "string", "format": "date"},
    "Again": {"$ref": "#/$defs/Color"}, "Where": {"type": "object", "properties": {"lat": {"type": "number"}},
    "required": ["lat"], "additionalProperties": false}, "Many": {"type": "integer"},
    "Of/Days": {"oneOf": [{"enum": ["12"], "type": "string"}, {"const": "null"}]}}, "properties": {
    "escaped": {"$ref": "#/$defs/Of~1Days"}, "place": {"$ref": "#/$defs/Of~1Days/oneOf/0"},
    "color": {"$ref": "#/$defs/Color", "description": "A color", "default": "red"}, "again": {"$ref": "#/$defs/Again"},
    "old": {"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"},
    "maybe": {"anyOf": [{"$ref": "#/$defs/Again"}, {"type": "null"}], "default": null},
    "unit": {"anyOf": [{"enum": ["C", "7"], "type": "string"}, {"const": "K"}, {"type": "null"}]},
    "day": {"$ref": "#/$defs/Day"}, "where": {"$ref": "#/$defs/Where"}, "many": {"allOf": [{"$ref": "#/$defs/Many"}]},
    "bare": {"properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": false},
    "list": {"items": {"type": "integer"}, "maxItems": 3}, "count": {"minimum": 1, "multipleOf": 2},
    "nullable": {"type": "integer", "nullable": true}},
    "required": ["escaped", "place", "color", "again", "old", "maybe", "unit", "day", "where", "many", "bare", "list", "count", "nullable"],
    "additionalProperties": false})";

TEST(HeldAnswer, WhatSchemasReferToIsReadAsItIsHeld) {
  std::mt19937 random(7);
  const Vocabulary vocabulary(true);
  const Json schema = Json::parse(kReferring);
  AnswerRules rules = Rules(true, kReferring);
  rules.tools.pop_back();
  const Json tools = Json::array({Json{{"name", "get_weather"}, {"parameters", schema}}});
  for (const std::string_view format : kTagged) {
    int whole = 0, nulls = 0;
    for (int round = 0; round < 48; ++round) {
      auto matcher = Held(format, rules, vocabulary);
      ASSERT_TRUE(matcher.ok()) << matcher.status();
      const std::string answer = Vocabulary::Shown(Drawn(*matcher, vocabulary, random));
      for (const auto& [name, arguments] : Read(format, answer, false, *ValueFromJson(tools.dump())).calls) {
        ++whole;
        ASSERT_TRUE(grammar::IsValid(schema, arguments)) << format << ": " << arguments << " of " << answer;
        const Json read = Json::parse(arguments);
        nulls += read["maybe"].is_null() + read["unit"].is_null() + read["nullable"].is_null();
        EXPECT_TRUE(read["bare"].is_object() && read["list"].is_array() && read["count"].is_number()) << arguments;
      }
    }
    EXPECT_GE(whole, 6) << format;
    EXPECT_GE(nulls, 1) << format;
  }
}

// Each schema leads to 40 times the next one: 40 to the power of 8 ways to the last.
TEST(HeldAnswer, SchemasThatManyLeadToAreLookedAtOnce) {
  const Vocabulary vocabulary(true);
  const auto many = [](const std::string& schema) {
    std::string all = schema;
    for (int i = 1; i < 40; ++i) all += ", " + schema;
    return R"({"anyOf": [)" + all + "]}";
  };
  std::string places = R"("h": )" + many(R"({"type": "integer"})");
  for (char place = 'a'; place < 'h'; ++place) {
    const std::string next = R"({"$ref": "#/$defs/)" + std::string(1, static_cast<char>(place + 1)) + "\"}";
    places += ", \"" + std::string(1, place) + "\": " + many(next);
  }
  const std::string schema =
      R"({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a"}}, "$defs": {)" + places + "}}";
  const Json tools = Json::array({Json{{"name", "get_weather"}, {"parameters", Json::parse(schema)}}});
  for (const std::string_view format : kTagged) {
    EXPECT_TRUE(Held(format, Rules(true, schema), vocabulary).ok()) << format;
    EXPECT_EQ(Read(format, "text", false, *ValueFromJson(tools.dump())).text, "text");
  }
}

// So many parameters that are of so large a list, or of as many lists, that each with its own would take gigabytes.
TEST(HeldAnswer, ListsThatManyReferToAreThereOnce) {
  const Vocabulary vocabulary(true);
  std::string values, lists, properties;
  for (int i = 0; i < 3000; ++i) values += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\"";
  for (int i = 0; i < 300; ++i) lists += R"({"$ref": "#/$defs/values"}, )";
  for (int i = 0; i < 500; ++i) properties += (i == 0 ? "\"" : ", \"") + std::to_string(i) + R"(": {"$ref": "#/$defs/lists"})";
  const std::string schema = R"({"type": "object", "$defs": {"values": {"enum": [)" + values + R"(]}, "lists": {"anyOf": [)" +
                             lists + R"({"type": "null"}]}}, "properties": {)" + properties + "}}";
  for (const std::string_view format : kTagged) {
    EXPECT_THAT(std::string(Held(format, Rules(true, schema), vocabulary).status().message()), HasSubstr("automaton has more"));
  }
}

TEST(HeldAnswer, WhatAFormCannotHoldIsNamed) {
  const Vocabulary vocabulary(false);
  const auto refusal = [&](std::string_view format, std::string_view properties) {
    const std::string schema = R"({"type": "object", "properties": )" + std::string(properties) + "}";
    return std::string(Held(format, Rules(true, schema), vocabulary).status().message());
  };
  const std::string pattern = R"({"x": {"type": "string", "pattern": "a+"}})";
  EXPECT_EQ(refusal("hermes", pattern), "");
  EXPECT_THAT(refusal("glm", pattern), HasSubstr("tools[0].parameters: at /properties/x: 'pattern' cannot be held to"));
  EXPECT_THAT(refusal("qwen-xml", R"({"x": {"anyOf": [{"type": "string"}, {"type": "array"}]}})"), HasSubstr("beside strings"));
  EXPECT_THAT(refusal("glm", R"({"x": {"enum": ["a", 1]}})"), HasSubstr("strings and others"));
  EXPECT_EQ(refusal("glm", R"({"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}})"), "");
  EXPECT_THAT(refusal("glm", R"({"x": {"anyOf": [{"const": "a"}, {"enum": ["b", 1]}]}})"), HasSubstr("strings and others"));
  EXPECT_THAT(refusal("glm", R"({"x": {"$ref": "#/properties/x"}})"), HasSubstr("at /properties/x: '$ref' cannot be held to"));
  EXPECT_THAT(refusal("glm", R"({"x": {"$ref": "#/properties/y", "maxLength": 1}, "y": {"type": "string"}})"),
              HasSubstr("at /properties/x: '$ref' cannot be held to"));
  EXPECT_THAT(refusal("glm", R"({"x": {"type": "integer", "multipleOf": 0}})"),
              HasSubstr("tools[0].parameters: at /properties/x: 'multipleOf' is 0, allowed are 1 to 100"));
  EXPECT_THAT(refusal("hermes", R"({"x": {"not": {}}})"), HasSubstr("tools[0].parameters: at /properties/x"));
  EXPECT_THAT(refusal("plain", "{}"), HasSubstr("tool_choice.kind: "));
  AnswerRules both = Rules(false);
  both.text = grammar::Regex("yes");
  EXPECT_THAT(std::string(Held("llama", both, vocabulary).status().message()), HasSubstr("format: does not go with tools"));
}

}  // namespace
}  // namespace moed::chat
