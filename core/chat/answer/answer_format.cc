#include "core/chat/answer/answer_format.h"

#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/harmony_parser.h"
#include "core/chat/answer/json_call.h"
#include "core/chat/answer/marked_parser.h"
#include "core/chat/answer/mistral_call.h"
#include "core/chat/answer/section_call.h"
#include "core/chat/answer/tagged_call.h"
#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

template <const std::string_view&... markers>
bool HasAll(std::string_view text) {
  return ((text.find(markers) != std::string_view::npos) && ...);
}

template <const TagSyntax& syntax, bool name_opened = false>
std::unique_ptr<CallReader> Tagged(const ToolSchemas& tools) {
  return MakeTaggedCallReader(syntax, tools, name_opened);
}
template <const TagSyntax& syntax, bool name_opened = false>
absl::StatusOr<grammar::Syntax> TaggedCalls(const Calls& calls) {
  return TaggedCallSyntax(calls, syntax, name_opened);
}
template <const SectionSyntax& syntax>
std::unique_ptr<CallReader> Section(const ToolSchemas&) {
  return MakeSectionReader(syntax);
}
template <const SectionSyntax& syntax>
absl::StatusOr<grammar::Syntax> SectionCalls(const Calls& calls) {
  return SectionCallSyntax(calls, syntax);
}
template <const MarkedSyntax& syntax>
absl::StatusOr<grammar::Syntax> Hold(const AnswerRules& rules) {
  return HoldMarked(syntax, rules);
}
template <const MarkedSyntax& syntax>
std::unique_ptr<AnswerParser> Marked(const AnswerOptions& options) {
  return MakeMarkedParser(syntax, options);
}

constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kToolCallEnd = "</tool_call>";
absl::StatusOr<grammar::Syntax> HermesCalls(const Calls& calls) {
  return grammar::InOrder({Gap(), JsonCallSyntax(calls, "arguments", false), Gap(), grammar::Marker(kToolCallEnd)});
}
constexpr CallMarker kHermesCalls[] = {
    {kToolCall, [](const ToolSchemas&) { return MakeJsonCallReader(kToolCallEnd); }, HermesCalls}};
constexpr MarkedSyntax kHermes = {kThink, kThinkEnd, kHermesCalls};

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kParameter = "<parameter=";
constexpr TagSyntax kXmlInToolCall = {.name_open = kFunction,
                                      .name_close = ">",
                                      .key_open = kParameter,
                                      .key_close = ">",
                                      .value_close = "</parameter>",
                                      .call_close = "</function>",
                                      .section_close = "</tool_call>",
                                      .lines = true};
constexpr TagSyntax kBareXml = {.name_open = kFunction,
                                .name_close = ">",
                                .key_open = kParameter,
                                .key_close = ">",
                                .value_close = "</parameter>",
                                .call_close = "</function>",
                                .lines = true};
constexpr CallMarker kXmlCalls[] = {{kToolCall, Tagged<kXmlInToolCall>, TaggedCalls<kXmlInToolCall>},
                                    {kFunction, Tagged<kBareXml, true>, TaggedCalls<kBareXml, true>}};
constexpr MarkedSyntax kXml = {kThink, kThinkEnd, kXmlCalls};

constexpr std::string_view kKey = "<arg_key>";
constexpr TagSyntax kGlmTags = {.key_open = kKey,
                                .key_close = "</arg_key>",
                                .value_open = "<arg_value>",
                                .value_close = "</arg_value>",
                                .call_close = "</tool_call>"};
constexpr CallMarker kGlmCalls[] = {{kToolCall, Tagged<kGlmTags>, TaggedCalls<kGlmTags>}};
constexpr MarkedSyntax kGlm = {kThink, kThinkEnd, kGlmCalls};

constexpr std::string_view kMiniMaxOpen = "<minimax:tool_call>";
constexpr TagSyntax kMiniMaxTags = {.name_open = "<invoke name=\"",
                                    .name_close = "\">",
                                    .key_open = "<parameter name=\"",
                                    .key_close = "\">",
                                    .value_close = "</parameter>",
                                    .call_close = "</invoke>",
                                    .section_close = "</minimax:tool_call>",
                                    .many = true};
constexpr CallMarker kMiniMaxCalls[] = {{kMiniMaxOpen, Tagged<kMiniMaxTags>, TaggedCalls<kMiniMaxTags>}};
constexpr MarkedSyntax kMiniMax = {kThink, kThinkEnd, kMiniMaxCalls};

constexpr std::string_view kDsml = "｜DSML｜";
constexpr TagSyntax DsmlTags(std::string_view section_close) {
  return {.name_open = "<｜DSML｜invoke name=\"",
          .name_close = "\">",
          .key_open = "<｜DSML｜parameter name=\"",
          .key_close = "\" string=\"true\">",
          .json_key_close = "\" string=\"false\">",
          .value_close = "</｜DSML｜parameter>",
          .call_close = "</｜DSML｜invoke>",
          .section_close = section_close,
          .many = true};
}
constexpr TagSyntax kDsmlFunctions = DsmlTags("</｜DSML｜function_calls>");
constexpr TagSyntax kDsmlTools = DsmlTags("</｜DSML｜tool_calls>");
constexpr CallMarker kDsmlCalls[] = {{"<｜DSML｜function_calls>", Tagged<kDsmlFunctions>, TaggedCalls<kDsmlFunctions>},
                                     {"<｜DSML｜tool_calls>", Tagged<kDsmlTools>, TaggedCalls<kDsmlTools>}};
constexpr MarkedSyntax kDeepSeekDsml = {kThink, kThinkEnd, kDsmlCalls};

constexpr std::string_view kDeepSeekOpen = "<｜tool▁calls▁begin｜>";
constexpr SectionSyntax kDeepSeekSection = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                            "<｜tool▁calls▁end｜>"};
constexpr CallMarker kDeepSeekCalls[] = {{kDeepSeekOpen, Section<kDeepSeekSection>, SectionCalls<kDeepSeekSection>}};
constexpr MarkedSyntax kDeepSeek = {kThink, kThinkEnd, kDeepSeekCalls};

constexpr std::string_view kKimiOpen = "<|tool_calls_section_begin|>";
constexpr SectionSyntax kKimiSection = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                                        "<|tool_calls_section_end|>", true};
constexpr CallMarker kKimiCalls[] = {{kKimiOpen, Section<kKimiSection>, SectionCalls<kKimiSection>}};
constexpr MarkedSyntax kKimi = {kThink, kThinkEnd, kKimiCalls};

constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
constexpr CallMarker kMistralCalls[] = {
    {kMistralOpen, [](const ToolSchemas&) { return MakeMistralReader(); },
     [](const Calls& calls) -> absl::StatusOr<grammar::Syntax> { return MistralCallSyntax(calls); }}};
constexpr MarkedSyntax kMistral = {"[THINK]", "[/THINK]", kMistralCalls};

constexpr std::string_view kLlamaHeader = "<|start_header_id|>";
constexpr std::string_view kLlamaParameters = "\"parameters\": ";
template <bool brace_came>
std::unique_ptr<CallReader> BareJson(const ToolSchemas& tools) {
  return MakeBareJsonReader(tools, brace_came);
}
template <bool brace_came>
absl::StatusOr<grammar::Syntax> BareJsonCalls(const Calls& calls) {
  return BareJsonSyntax(calls, brace_came);
}
constexpr CallMarker kLlamaCalls[] = {
    {"<|python_tag|>", BareJson<false>, BareJsonCalls<false>, false, true},
    {"{", BareJson<true>, BareJsonCalls<true>, true, true},
};
constexpr MarkedSyntax kLlama = {"", "", kLlamaCalls};

constexpr MarkedSyntax kReasoningOnly = {kThink, kThinkEnd, {}};
constexpr MarkedSyntax kNothing = {"", "", {}};

constexpr std::string_view kHarmonyChannel = "<|channel|>";
constexpr std::string_view kHarmonyMessage = "<|message|>";

constexpr AnswerFormat kFormats[] = {
    {"harmony", "gpt-oss: channels, messages to functions", HasAll<kHarmonyChannel, kHarmonyMessage>, "", MakeHarmonyParser,
     HoldHarmony},
    {"deepseek-dsml", "DeepSeek-V3.2 and V4: invoke tags of its own", HasAll<kDsml>, kThink, Marked<kDeepSeekDsml>,
     Hold<kDeepSeekDsml>},
    {"deepseek", "DeepSeek V3, R1, V3.1: a section of calls", HasAll<kDeepSeekOpen>, kThink, Marked<kDeepSeek>, Hold<kDeepSeek>},
    {"kimi", "Kimi K2: a section of calls", HasAll<kKimiOpen>, kThink, Marked<kKimi>, Hold<kKimi>},
    {"minimax", "MiniMax-M2: invoke tags", HasAll<kMiniMaxOpen>, kThink, Marked<kMiniMax>, Hold<kMiniMax>},
    {"glm", "GLM-4.5 and later: pairs of keys and values", HasAll<kKey>, kThink, Marked<kGlm>, Hold<kGlm>},
    {"qwen-xml", "Qwen3-Coder, Qwen3.5, Step 3.5: a tag for each parameter", HasAll<kFunction, kParameter>, kThink, Marked<kXml>,
     Hold<kXml>},
    {"mistral", "Mistral: [TOOL_CALLS], [THINK]", HasAll<kMistralOpen>, "[THINK]", Marked<kMistral>, Hold<kMistral>},
    {"llama", "Llama 3: the whole answer is JSON", HasAll<kLlamaHeader, kLlamaParameters>, "", Marked<kLlama>, Hold<kLlama>},
    {"hermes", "Hermes, Qwen2.5, Qwen3: JSON in <tool_call>", HasAll<kToolCall>, kThink, Marked<kHermes>, Hold<kHermes>},
    {"think", "reasoning in <think>, no calls", HasAll<kThink>, kThink, Marked<kReasoningOnly>, Hold<kReasoningOnly>},
    {"plain", "text alone", HasAll<>, "", Marked<kNothing>, Hold<kNothing>},
};

}  // namespace

std::span<const AnswerFormat> AnswerFormats() { return kFormats; }

const AnswerFormat& FormatOfTemplate(std::string_view template_source) {
  const AnswerFormat* format = kFormats;
  while (!format->recognise(template_source)) ++format;
  return *format;
}

bool OpensReasoning(const AnswerFormat& format, std::string_view prompt) {
  const std::string_view open = format.reasoning_open;
  const std::string_view end = Strip(prompt, std::nullopt, Side::kRight);
  return !open.empty() && end.size() >= open.size() && end.substr(end.size() - open.size()) == open;
}

}  // namespace moed::chat
