#include "core/chat/answer/answer_format.h"

#include "core/base/status.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/gemma_call.h"
#include "core/chat/answer/harmony_parser.h"
#include "core/chat/answer/json_call.h"
#include "core/chat/answer/marked_parser.h"
#include "core/chat/answer/mistral_call.h"
#include "core/chat/answer/python_call.h"
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
template <const std::string_view&... markers>
bool HasAny(std::string_view text) {
  return ((text.find(markers) != std::string_view::npos) || ...);
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
std::unique_ptr<CallReader> Section(const ToolSchemas& tools) {
  return MakeSectionReader(syntax, tools);
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
  return grammar::InOrder({Gap(), JsonCallSyntax(calls, {}), Gap(), grammar::Marker(kToolCallEnd)});
}
constexpr CallMarker kHermesCalls[] = {
    {kToolCall, [](const ToolSchemas&) { return MakeJsonCallReader(kToolCallEnd); }, HermesCalls}};
constexpr MarkedSyntax kHermes = {kThink, kThinkEnd, kHermesCalls};

constexpr std::string_view kResponse = "<response>";
constexpr Envelope kResponses[] = {{kResponse, "</response>"}};
constexpr MarkedSyntax kErnie = {kThink, kThinkEnd, kHermesCalls, kResponses};

template <const std::string_view& close>
std::unique_ptr<CallReader> JsonList(const ToolSchemas&) {
  return MakeJsonListReader(close);
}
template <const std::string_view& close>
absl::StatusOr<grammar::Syntax> JsonListCalls(const Calls& calls) {
  const grammar::Syntax list = JsonListSyntax(calls, {});
  return close.empty() ? grammar::InOrder({Gap(), list}) : grammar::InOrder({Gap(), list, Gap(), grammar::Marker(close)});
}
constexpr std::string_view kNoClose = "";
constexpr std::string_view kGraniteCall = "<|tool_call|>";
constexpr CallMarker kGraniteCalls[] = {{kGraniteCall, JsonList<kNoClose>, JsonListCalls<kNoClose>},
                                        {kToolCall, JsonList<kNoClose>, JsonListCalls<kNoClose>}};
constexpr MarkedSyntax kGranite = {kThink, kThinkEnd, kGraniteCalls, kResponses};

constexpr std::string_view kToolCalls = "<tool_calls>";
constexpr std::string_view kToolCallsEnd = "</tool_calls>";
constexpr std::string_view kToolCallsList = "<tool_calls>[";
constexpr CallMarker kHunyuanCalls[] = {{kToolCalls, JsonList<kToolCallsEnd>, JsonListCalls<kToolCallsEnd>}};
constexpr Envelope kAnswers[] = {{"<answer>", "</answer>"}, {"助手：", ""}};  // as its prompt for tools asks for
constexpr MarkedSyntax kHunyuan = {kThink, kThinkEnd, kHunyuanCalls, kAnswers};

constexpr std::string_view kAction = "<|START_ACTION|>";
constexpr std::string_view kActionEnd = "<|END_ACTION|>";
absl::StatusOr<grammar::Syntax> CommandCalls(const Calls& calls) {
  const grammar::Syntax id = grammar::Optional(grammar::Regex("\"tool_call_id\": ?\"[0-9]{1,3}\", ?"));
  const grammar::Syntax list = JsonListSyntax(calls, {.arguments = "parameters", .name = "tool_name", .before = id});
  return grammar::InOrder({Gap(), list, Gap(), grammar::Marker(kActionEnd)});
}
constexpr CallMarker kCommandCalls[] = {{kAction, JsonList<kActionEnd>, CommandCalls}};
constexpr Envelope kCommandTexts[] = {{"<|START_TEXT|>", "<|END_TEXT|>"}, {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}};
constexpr MarkedSyntax kCommand = {"<|START_THINKING|>", "<|END_THINKING|>", kCommandCalls, kCommandTexts};

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
constexpr Envelope kXmlEnds[] = {{"", kToolCallEnd}};  // of calls whose <tool_call> was forgotten
constexpr MarkedSyntax kXml = {kThink, kThinkEnd, kXmlCalls, kXmlEnds, true};

constexpr std::string_view kKey = "<arg_key>";
constexpr TagSyntax kGlmTags = {.key_open = kKey,
                                .key_close = "</arg_key>",
                                .value_open = "<arg_value>",
                                .value_close = "</arg_value>",
                                .call_close = "</tool_call>"};
constexpr CallMarker kGlmCalls[] = {{kToolCall, Tagged<kGlmTags>, TaggedCalls<kGlmTags>}};
constexpr MarkedSyntax kGlm = {kThink, kThinkEnd, kGlmCalls, {}, true};

constexpr std::string_view kHyMark = "<tool_sep";
constexpr std::string_view kHyKey = "<arg_key";
constexpr std::string_view kHySuffix = ":opensource";
constexpr TagSyntax kHyTags = {.name_open = "<tool_call>",
                               .name_close = "<tool_sep>",
                               .key_open = kKey,
                               .key_close = "</arg_key>",
                               .value_open = "<arg_value>",
                               .value_close = "</arg_value>",
                               .call_close = "</tool_call>",
                               .section_close = kToolCallsEnd,
                               .many = true};
constexpr CallMarker kHyCalls[] = {{kToolCalls, Tagged<kHyTags>, TaggedCalls<kHyTags>}};
constexpr MarkedSyntax kHy = {kThink, kThinkEnd, kHyCalls};
constexpr TagSyntax kHyOpenTags = {.name_open = "<tool_call:opensource>",
                                   .name_close = "<tool_sep:opensource>",
                                   .key_open = "<arg_key:opensource>",
                                   .key_close = "</arg_key:opensource>",
                                   .value_open = "<arg_value:opensource>",
                                   .value_close = "</arg_value:opensource>",
                                   .call_close = "</tool_call:opensource>",
                                   .section_close = "</tool_calls:opensource>",
                                   .many = true};
constexpr CallMarker kHyOpenCalls[] = {{"<tool_calls:opensource>", Tagged<kHyOpenTags>, TaggedCalls<kHyOpenTags>}};
constexpr std::string_view kThinkOpen = "<think:opensource>";
constexpr MarkedSyntax kHyOpen = {kThinkOpen, "</think:opensource>", kHyOpenCalls};

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
constexpr MarkedSyntax kMiniMax = {kThink, kThinkEnd, kMiniMaxCalls, {}, true};

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
constexpr MarkedSyntax kKimi = {kThink, kThinkEnd, kKimiCalls, {}, true};

constexpr std::string_view kSolarCall = "<|tool_call:begin|>";
constexpr SectionSyntax kSolarSection = {.call_open = kSolarCall,
                                         .separator = "<|tool_call:args|>",
                                         .call_close = "<|tool_call:end|>",
                                         .section_close = "<|calls|>",
                                         .id_close = "<|tool_call:name|>",
                                         .ends_answer = true};
// The prompt has begun the first message; what follows a message's end begins the next one.
constexpr CallMarker kSolarCalls[] = {{"<|tool_calls|>", Section<kSolarSection>, SectionCalls<kSolarSection>},
                                      {"<|begin|>assistant<|tool_calls|>", Section<kSolarSection>, SectionCalls<kSolarSection>}};
constexpr Envelope kSolarTexts[] = {{"<|content|>", "<|end|>"}, {"<|begin|>assistant<|content|>", ""}};
constexpr MarkedSyntax kSolar = {"<|think|>", "<|end|>", kSolarCalls, kSolarTexts};

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

constexpr std::string_view kLlama4Header = "<|header_start|>";
// A held answer has one form of lists, for each one is all schemas again.
absl::StatusOr<grammar::Syntax> BareListCalls(const Calls& calls) {
  const auto python = PythonCallSyntax(calls, true);
  return python.ok() ? *python : JsonListSyntax(calls, {.arguments = "parameters"}, true);
}
constexpr CallMarker kLlama4Calls[] = {
    {"<|python_end|>", MakeBareReader, BareJsonCalls<false>, false, true},
    {"{", BareJson<true>, BareJsonCalls<true>, true, true},
    {"[", MakeBareListReader, BareListCalls, true, true},
};
constexpr Envelope kLlama4Texts[] = {{"<|python_start|>", ""}};
constexpr MarkedSyntax kLlama4 = {"", "", kLlama4Calls, kLlama4Texts};

constexpr std::string_view kLfmTools = "<|tool_list_start|>";
constexpr std::string_view kLfmBareTools = "List of tools: [";
constexpr std::string_view kLfmEnd = "<|tool_call_end|>";
constexpr CallMarker kLfmCalls[] = {{"<|tool_call_start|>", [](const ToolSchemas&) { return MakePythonReader(kLfmEnd); },
                                     [](const Calls& calls) -> absl::StatusOr<grammar::Syntax> {
                                       MOED_ASSIGN_OR_RETURN(const grammar::Syntax list, PythonCallSyntax(calls, false));
                                       return grammar::InOrder({list, grammar::Marker(kLfmEnd)});
                                     }}};
constexpr MarkedSyntax kLfm = {kThink, kThinkEnd, kLfmCalls};

constexpr std::string_view kGemmaMark = "<|tool_call>call:";
constexpr std::string_view kGemmaThought = "<|channel>thought";
constexpr CallMarker kGemmaCalls[] = {{"<|tool_call>", [](const ToolSchemas&) { return MakeGemmaReader(); }, GemmaCallSyntax}};
constexpr MarkedSyntax kGemma4 = {kGemmaThought, "<channel|>", kGemmaCalls};

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
    {"hy-open", "Hy3: pairs of keys and values, :opensource in every tag", HasAll<kHyMark, kHyKey, kHySuffix>, kThinkOpen,
     Marked<kHyOpen>, Hold<kHyOpen>},
    {"hy", "Hy3 preview: pairs of keys and values", HasAll<kHyMark, kHyKey>, kThink, Marked<kHy>, Hold<kHy>},
    {"glm", "GLM-4.5 and later: pairs of keys and values", HasAll<kKey>, kThink, Marked<kGlm>, Hold<kGlm>},
    {"qwen-xml", "Qwen3-Coder, Qwen3.5, Step 3.5: a tag for each parameter", HasAll<kFunction, kParameter>, kThink, Marked<kXml>,
     Hold<kXml>},
    {"mistral", "Mistral: [TOOL_CALLS], [THINK]", HasAll<kMistralOpen>, "[THINK]", Marked<kMistral>, Hold<kMistral>},
    {"llama", "Llama 3: the whole answer is JSON", HasAll<kLlamaHeader, kLlamaParameters>, "", Marked<kLlama>, Hold<kLlama>},
    {"llama4", "Llama 4: the whole answer is JSON or Python", HasAll<kLlama4Header, kLlamaParameters>, "", Marked<kLlama4>,
     Hold<kLlama4>},
    {"command", "Command A+, R7B: sections of thinking, actions and text", HasAll<kAction>, "<|START_THINKING|>",
     Marked<kCommand>, Hold<kCommand>},
    {"solar", "Solar Open: a message for thinking, content or calls", HasAll<kSolarCall>, "<|think|>", Marked<kSolar>,
     Hold<kSolar>},
    {"gemma4", "Gemma 4: calls with bare keys, a channel of thought", HasAll<kGemmaMark>, kGemmaThought, Marked<kGemma4>,
     Hold<kGemma4>},
    {"lfm2", "LFM2: Python in <|tool_call_start|>", HasAny<kLfmTools, kLfmBareTools>, kThink, Marked<kLfm>, Hold<kLfm>},
    {"granite", "Granite 3: a list of JSON after <|tool_call|>", HasAll<kGraniteCall>, kThink, Marked<kGranite>, Hold<kGranite>},
    {"hunyuan", "Hunyuan-A13B: a list of JSON in <tool_calls>, <answer>", HasAll<kToolCallsList>, kThink, Marked<kHunyuan>,
     Hold<kHunyuan>},
    {"ernie", "ERNIE-4.5: JSON in <tool_call>, <response>", HasAll<kToolCall, kResponse>, kThink, Marked<kErnie>, Hold<kErnie>},
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
