// What answers of every format say, wherever they are cut; how a template's format is recognised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/chat/answer/form_markers.h"
#include "tests/chat/answer/goldens.h"

namespace moed::chat {
namespace {

TEST(Answer, EveryGoldenSaysWhatItSays) {
  std::set<std::string_view> seen;
  for (const Golden& golden : Goldens()) {
    EXPECT_EQ(Shown(Parsed(golden, golden.answer)), golden.says) << golden.format << ": " << golden.answer;
    seen.insert(golden.format);
  }
  for (const AnswerFormat& format : AnswerFormats()) EXPECT_EQ(seen.count(format.name), 1u) << format.name;
}

TEST(Answer, CutAnywhereItSaysTheSame) {
  for (const Golden& golden : Goldens()) {
    std::vector<size_t> everywhere;
    for (size_t cut = 1; cut < golden.answer.size(); ++cut) {
      everywhere.push_back(cut);
      ASSERT_EQ(Shown(Parsed(golden, golden.answer, {cut})), golden.says) << golden.format << " cut at " << cut;
    }
    EXPECT_EQ(Shown(Parsed(golden, golden.answer, everywhere)), golden.says) << golden.format;
  }
}

TEST(Answer, WithoutToolsNothingIsACall) {
  for (const Golden& golden : Goldens()) {
    const auto parser = FormatNamed(golden.format).make({golden.reasoning_open, Value()});
    std::vector<AnswerPart> parts;
    parser->Add(golden.answer, parts);
    parser->End(parts);
    for (const AnswerPart& part : parts) EXPECT_NE(part.kind, AnswerPart::Kind::kToolCall) << golden.answer;
  }
}

TEST(Answer, ArgumentsComeAsTheyAreWritten) {
  const auto parser = FormatNamed("hermes").make({false, Tools()});
  std::vector<AnswerPart> parts;
  parser->Add("<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"pla", parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"pla)");
  const auto xml = FormatNamed("qwen-xml").make({false, Tools()});
  parts.clear();
  xml->Add("<tool_call>\n<function=get_weather>\n<parameter=place>\nIn the no", parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"place\": \"In the no)");
  const auto python = FormatNamed("llama4").make({false, Tools()});
  parts.clear();
  python->Add("[get_weather(days=2, place='In the no", parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"days\": 2, \"place\": \"In the no)");
  const auto gemma = FormatNamed("gemma4").make({false, Tools()});
  parts.clear();
  gemma->Add("<|tool_call>call:get_weather{days:2,place:<|\"|>In the no<|", parts);
  gemma->End(parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"days\": 2, \"place\": \"In the no<|)");
}

TEST(Answer, MarkersOfAForm) {
  const auto markers = [](std::string_view name) {
    const auto all = MarkersOf(FormatNamed(name));
    return std::set<std::string>(all.begin(), all.end());
  };
  using testing::UnorderedElementsAre;
  EXPECT_THAT(markers("hermes"), UnorderedElementsAre("<think>", "</think>", "<tool_call>", "</tool_call>"));
  EXPECT_THAT(markers("harmony"), UnorderedElementsAre("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>",
                                                       "<|return|>", "<|end|>"));
  EXPECT_THAT(markers("ernie"), testing::IsSupersetOf({"<response>", "</response>", "<tool_call>"}));
  for (const AnswerFormat& format : AnswerFormats()) EXPECT_EQ(MarkersOf(format).empty(), format.name == "plain") << format.name;
}

TEST(Answer, AMarkerThatTheLengthCutOffIsNoText) {
  const std::pair<Golden, const char*> kCut[] = {
      {{"hermes", "It is sunny.\n<tool_ca", ""}, "text(It is sunny.)"},
      {{"hermes", "<think>It is</thi", ""}, "reasoning(It is)"},
      {{"hermes", "It is \n", ""}, "text(It is \n)"},
      {{"hermes", "1 <= 2 <th", ""}, "text(1 <= 2 <th)"},
      {{"harmony", "<|channel|>final<|message|>It is<|en", ""}, "text(It is)"},
      {{"harmony", "<|chan", ""}, ""},
      {{"harmony", "<|channel|>commentary to=functions.clock<|message|> ", ""}, ""},
  };
  for (const auto& [golden, says] : kCut) {
    const auto parser = FormatNamed(golden.format).make({false, Tools()});
    std::vector<AnswerPart> parts;
    parser->Add(golden.answer, parts);
    parser->CutOff(parts);
    EXPECT_EQ(Shown(parts), says) << golden.answer;
  }
}

TEST(Answer, WhatIsHeldBackIsBounded) {
  const std::string filler(3 * AnswerParser::kMostHeldBytes, 'x');
  const std::string spaces(3 * AnswerParser::kMostHeldBytes, ' ');
  const std::pair<std::string_view, std::string> kEndless[] = {
      {"hermes", "<tool_call>{\"arguments\": {\"a\": \"" + filler},
      {"hermes", "<tool_call>" + spaces},
      {"hermes", "a" + spaces + "<"},
      {"glm", "<tool_call>" + filler},
      {"qwen-xml", "<tool_call><function=" + filler},
      {"mistral", "[TOOL_CALLS]" + filler},
      {"deepseek", "<｜tool▁calls▁begin｜>" + spaces},
      {"lfm2", "<|tool_call_start|>[" + filler},
      {"llama4", "[" + filler},
      {"gemma4", "<|tool_call>call:" + filler},
      {"hunyuan", "a</answer>" + spaces},
      {"harmony", "<|channel|>" + filler},
      {"harmony", spaces},
  };
  for (const auto& [format, answer] : kEndless) {
    const auto parser = FormatNamed(format).make({false, Tools()});
    std::vector<AnswerPart> parts;
    parser->Add(answer, parts);
    size_t given = 0;
    for (const AnswerPart& part : parts) given += part.text.size();
    EXPECT_GE(given + AnswerParser::kMostHeldBytes + 64, answer.size()) << format;
    parser->End(parts);
    EXPECT_EQ(Shown(parts).size(), Shown({{AnswerPart::Kind::kText, answer, 0, "", ""}}).size()) << format;
  }
}

TEST(Answer, ALongValueOfUnknownTypeIsAString) {
  const std::string filler(2 * AnswerParser::kMostHeldBytes, '7');
  const Golden golden{"qwen-xml", "", ""};
  EXPECT_EQ(Shown(Parsed(golden, "<function=get_weather><parameter=days>" + filler + "</parameter></function>")),
            "call(get_weather, , {\"days\": \"" + filler + "\"})");
}

TEST(Answer, ALongListOrObjectIsHandedOutAsItComes) {
  const auto says = [](const std::string& value) {
    return Shown(
        Parsed({"qwen-xml", "", ""}, "<function=get_weather>\n<parameter=list>\n" + value + "\n</parameter>\n</function>"));
  };
  const std::string begun = "[\"" + std::string(2 * AnswerParser::kMostHeldBytes, 'x');
  const std::string whole = begun + "</parameter>\\\"\",\n  {\"a\": 1}]";
  EXPECT_EQ(says(whole), "call(get_weather, , {\"list\": " + whole + "})");
  EXPECT_EQ(says(begun + "\", oops]"),
            "call(get_weather, , {\"list\": " + begun + "\", ) text(oops]\n</parameter>\n</function>)");
  EXPECT_EQ(says(begun + "\", [1]"), "call(get_weather, , {\"list\": " + begun + "\", [1]) text(\n</parameter>\n</function>)");

  const auto parser = FormatNamed("glm").make({false, Tools()});
  std::vector<AnswerPart> parts;
  parser->Add("<tool_call>get_weather<arg_key>list</arg_key><arg_value>" + begun + "\", </arg", parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"list\": " + begun + "\", )");
  parser->End(parts);
  EXPECT_EQ(Shown(parts), "call(get_weather, , {\"list\": " + begun + "\", )");
}

TEST(AnswerFormat, IsRecognisedFromWhatTemplatesSay) {
  const std::pair<std::string_view, std::string_view> kTemplates[] = {
      {"{{- '<tool_call>\\n{\"name\": \"' }} <think>", "hermes"},
      {"<tool_call>\\n<function=example>\\n<parameter=x>", "qwen-xml"},
      {"<tool_call>{name}<arg_key>{k}</arg_key>", "glm"},
      {"{{'<｜tool▁calls▁begin｜>'}}<think>", "deepseek"},
      {"{% set dsml_token = '｜DSML｜' %}", "deepseek-dsml"},
      {"<|tool_calls_section_begin|>", "kimi"},
      {"{% set a = '<minimax:tool_call>' %}", "minimax"},
      {"[TOOL_CALLS]", "mistral"},
      {"'<tool_call>' '<tool_sep>' '<arg_key>'", "hy"},
      {"{% set s = ':opensource' %} '<tool_sep{}>'.format(s) '<arg_key{}>'", "hy-open"},
      {"<|header_start|> '\"parameters\": '", "llama4"},
      {"<|START_ACTION|>[", "command"},
      {"<|tool_calls|><|tool_call:begin|>", "solar"},
      {"'<|tool_call>call:' + name", "gemma4"},
      {"List of tools: <|tool_list_start|>[", "lfm2"},
      {"\"List of tools: [\" <think>", "lfm2"},
      {"respond only with <|tool_call|> followed by a JSON list", "granite"},
      {"<tool_calls>[{\"name\": \"func_name1\"", "hunyuan"},
      {"<tool_call> <response> </think>", "ernie"},
      {"<|start_header_id|> '\"parameters\": '", "llama"},
      {"<|start_header_id|>", "plain"},
      {"<|channel|>analysis<|message|>", "harmony"},
      {"<think>", "think"},
      {"", "plain"},
  };
  for (const auto& [source, name] : kTemplates) EXPECT_EQ(FormatOfTemplate(source).name, name) << source;
}

TEST(AnswerFormat, ThePromptsEndSaysWhetherReasoningIsOpen) {
  EXPECT_TRUE(OpensReasoning(FormatNamed("hermes"), "<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(OpensReasoning(FormatNamed("glm"), "<|assistant|><think>"));
  EXPECT_FALSE(OpensReasoning(FormatNamed("hermes"), "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(OpensReasoning(FormatNamed("plain"), "<think>"));
  EXPECT_FALSE(OpensReasoning(FormatNamed("harmony"), "<|start|>assistant"));
}

}  // namespace
}  // namespace moed::chat
