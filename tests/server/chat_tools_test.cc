// What chat cuts out of answers and holds them to: reasoning, calls of tools and formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/grammar/matcher.h"
#include "server/rpc/special_token_filter.h"
#include "tests/server/chat_server.h"

namespace moed {
namespace {

using moe::v1::ChatRequest;
using moe::v1::ChatResponse;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool MayBe(const EngineRequest& request, std::string_view answer) {
  grammar::Matcher matcher = *request.format;
  return matcher.Accept(answer).ok() && matcher.MayEnd();
}

TEST(ChatTest, AFormatHoldsWhatComesAfterTheReasoning) {
  ChatServer chat("<tool_call>{{ messages[0].content }}<think>");
  const std::string text = R"({"a":"</think>"})";
  chat.answer = "hm</think>" + text;
  ChatRequest request = Said("Hello");
  request.mutable_format()->set_json_object(true);
  ChatResponse response;
  ASSERT_TRUE(chat.Chat(request, &response).ok());
  EXPECT_EQ(response.text(), text);
  EXPECT_EQ(response.reasoning(), "hm");
  ASSERT_NE(chat.seen.format, nullptr);
  EXPECT_TRUE(MayBe(chat.seen, chat.answer));
  EXPECT_FALSE(MayBe(chat.seen, "hm</think>x"));
  EXPECT_FALSE(MayBe(chat.seen, text)) << "the prompt has opened the reasoning";
}

TEST(ChatTest, AnAnswerCanBeHeldToCalls) {
  ChatServer chat("{{ messages[0].content }}<tool_call>{{ tools|tojson }}</tool_call>");
  ChatRequest request = Said("Hello");
  moe::v1::Tool& f = *request.add_tools();
  f.set_name("f");
  f.set_parameters(R"({"properties": {"n": {"enum": [1, 2]}}, "required": ["n"]})");
  request.add_tools()->set_name("g");
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}</tool_call>";
  };
  const auto held = [&]() -> const EngineRequest& {
    const grpc::Status status = chat.Chat(request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return chat.seen;
  };
  EXPECT_EQ(held().format, nullptr);
  request.mutable_tool_choice()->set_kind(moe::v1::ToolChoice::REQUIRED);
  held();
  EXPECT_TRUE(MayBe(chat.seen, call("f", R"({"n":1})") + call("g", "{}")));
  EXPECT_FALSE(MayBe(chat.seen, call("f", R"({"n":3})")));
  EXPECT_FALSE(MayBe(chat.seen, "fine"));
  request.mutable_tool_choice()->set_kind(moe::v1::ToolChoice::FUNCTION);
  request.mutable_tool_choice()->set_name("g");
  held();
  EXPECT_TRUE(MayBe(chat.seen, call("g", "{}")));
  EXPECT_FALSE(MayBe(chat.seen, call("g", "{}") + call("g", "{}")));
  EXPECT_FALSE(MayBe(chat.seen, call("f", R"({"n":1})")));
  request.clear_tool_choice();
  request.mutable_tools(0)->set_strict(true);
  held();
  EXPECT_TRUE(MayBe(chat.seen, "fine " + call("f", R"({"n":2})") + call("g", R"({"a":1})")));
  EXPECT_FALSE(MayBe(chat.seen, call("f", "{}")));
  request.mutable_tool_choice()->set_at_most_one(true);
  held();
  EXPECT_FALSE(MayBe(chat.seen, call("f", R"({"n":2})") + call("g", "{}")));
}

TEST(ChatTest, AnAnswerThatMustCallHasNoFormat) {
  ChatServer chat("{{ messages[0].content }}<tool_call></tool_call>");
  ChatRequest request = Said("Hello");
  request.add_tools()->set_name("f");
  request.mutable_tool_choice()->set_kind(moe::v1::ToolChoice::REQUIRED);
  request.mutable_format()->set_json_schema(R"({"not": {}})");
  const grpc::Status status = chat.Chat(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(MayBe(chat.seen, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"));
}

// Of the tool "f".
ChatRequest ACallAskedFor(const char* schema) {
  ChatRequest request = Said("Hello");
  request.add_tools()->set_name("f");
  request.mutable_tools(0)->set_parameters(schema);
  request.mutable_tool_choice()->set_kind(moe::v1::ToolChoice::REQUIRED);
  return request;
}

TEST(ChatTest, AToolWithoutParametersIsCalledWithoutArguments) {
  ChatServer chat("{{ messages[0].content }}<tool_call></tool_call>");
  const std::pair<const char*, bool> kSchemas[] = {
      {"", false},
      {"{}", false},
      {R"({"type": "object", "properties": {}, "required": []})", false},
      {R"({"type": "object", "properties": {}, "additionalProperties": true})", true},
      {R"({"type": "object", "patternProperties": {"^x$": {}}})", true},
      {R"({"anyOf": [{"type": "object"}]})", true}};
  for (const auto& [schema, any] : kSchemas) {
    ChatRequest request = ACallAskedFor(schema);
    const grpc::Status status = chat.Chat(request);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(MayBe(chat.seen, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)")) << schema;
    EXPECT_EQ(MayBe(chat.seen, R"(<tool_call>{"name": "f", "arguments": {"x":1}}</tool_call>)"), any) << schema;
  }
}

TEST(ChatTest, ASchemaThatCannotBeHeldIsAnErrorOfStrictToolsAlone) {
  ChatServer chat("{{ messages[0].content }}<tool_call></tool_call>");
  for (const char* schema : {R"({"properties": {"x": {"not": {}}}})", R"({"type": "array"})"}) {
    ChatRequest request = ACallAskedFor(schema);
    const grpc::Status status = chat.Chat(request);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(MayBe(chat.seen, R"(<tool_call>{"name": "f", "arguments": {"x":1}}</tool_call>)")) << schema;
    request.mutable_tools(0)->set_strict(true);
    EXPECT_THAT(ViolatedFields(chat.Chat(request)), ElementsAre("tools[0].parameters")) << schema;
  }
}

const char* const kHermes = "{{ messages[-1].content }}<tool_call></tool_call><think></think>{{ add }}";

struct Heard {
  std::string text, reasoning;
  std::vector<moe::v1::ToolCallDelta> calls;
  moe::v1::Finish finish;
};

// The deltas of a stream put together.
Heard Listen(ChatServer& chat, const ChatRequest& request) {
  Heard heard;
  grpc::ClientContext context;
  const auto reader = chat.server.inference().ChatStream(&context, request);
  for (ChatResponse message; reader->Read(&message);) {
    heard.text += message.text();
    heard.reasoning += message.reasoning();
    for (const auto& delta : message.tool_calls()) {
      if (delta.index() == static_cast<int>(heard.calls.size())) {
        heard.calls.push_back(delta);
      } else {
        EXPECT_EQ(delta.id() + delta.name(), "") << "with the first delta of a call only";
        heard.calls.at(static_cast<size_t>(delta.index())).mutable_arguments()->append(delta.arguments());
      }
    }
    if (message.has_finish()) heard.finish = message.finish();
  }
  EXPECT_TRUE(reader->Finish().ok());
  return heard;
}

TEST(ChatTest, ReasoningAndCallsAreCutOutOfTheAnswer) {
  ChatServer chat(kHermes);
  chat.answer =
      "<think>well</think>Let me see.<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>"
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  ChatRequest request = Said("hi");
  request.add_tools()->set_name("f");
  request.add_tools()->set_name("g");
  const Heard streamed = Listen(chat, request);
  EXPECT_FALSE(chat.seen.skip_special_tokens) << "markers may be special tokens";
  ChatResponse response;
  ASSERT_TRUE(chat.Chat(request, &response).ok());
  const Heard whole = {
      response.text(), response.reasoning(), {response.tool_calls().begin(), response.tool_calls().end()}, response.finish()};
  for (const Heard& heard : {streamed, whole}) {
    EXPECT_EQ(heard.text, "Let me see.");
    EXPECT_EQ(heard.reasoning, "well");
    EXPECT_EQ(heard.finish.reason(), moe::v1::FINISH_REASON_TOOL_CALLS);
    ASSERT_EQ(heard.calls.size(), 2u);
    EXPECT_EQ(heard.calls[0].name(), "f");
    EXPECT_EQ(heard.calls[0].arguments(), R"({"x": 1})");
    EXPECT_EQ(heard.calls[1].name(), "g");
    EXPECT_EQ(heard.calls[1].arguments(), "{}");
    EXPECT_EQ(heard.calls[0].id().size(), 9u);
    EXPECT_NE(heard.calls[0].id(), heard.calls[1].id());
    EXPECT_EQ(heard.finish.usage().reasoning_tokens(), std::ssize("<think>well") - 1) << "a token for each character";
  }
}

TEST(ChatTest, AnAnswerWithoutReasoningHasNoTokensOfIt) {
  ChatServer chat(kHermes);
  chat.answer = "<thin ice";
  EXPECT_EQ(Listen(chat, Said("hi")).finish.usage().reasoning_tokens(), 0);
}

TEST(ChatTest, SpecialTokensThatAreNoMarkersAreSkipped) {
  ChatServer chat(kHermes);
  const EncodeOptions special{.add_special_tokens = false}, plain{.add_special_tokens = false, .parse_special_tokens = false};
  chat.tokens = *TestTokenizer().Encode("<think>hm<|user|></think>It is<|end|>", special);
  const std::vector<TokenId> spelled = *TestTokenizer().Encode(" no <|end|>.", plain);
  chat.tokens.insert(chat.tokens.end(), spelled.begin(), spelled.end());
  chat.tokens.push_back(TestTokenizer().Encode("<|end|>", special)->front());
  ChatRequest request = Said("hi");
  for (const bool said : {false, true}) {
    if (said) request.mutable_response()->set_skip_special_tokens(true);
    const Heard heard = Listen(chat, request);
    EXPECT_EQ(heard.reasoning, "hm");
    EXPECT_EQ(heard.text, "It is no <|end|>.") << "the one that is spelled stays";
  }
  request.mutable_response()->set_skip_special_tokens(false);
  const Heard shown = Listen(chat, request);
  EXPECT_EQ(shown.reasoning, "hm<|user|>");
  EXPECT_EQ(shown.text, "It is<|end|> no <|end|>.<|end|>");
}

TEST(SpecialTokenFilter, TextMayComeLaterThanItsTokens) {
  const auto tokens = TestTokenizer().Encode("<|end|><|user|><|end|>", {.add_special_tokens = false});
  std::vector<TokenInfo> infos;
  for (const TokenId token : *tokens) infos.push_back({token});
  SpecialTokenFilter filter(TestTokenizer(), {"<|user|>assistant"});
  EXPECT_EQ(filter.Put(infos, "a"), "a");
  EXPECT_EQ(filter.Put({}, "b<|e"), "b");
  EXPECT_EQ(filter.Put({}, "nd|>c<|user|>d<"), "c<|user|>d");
  EXPECT_EQ(filter.Put({}, "|enough"), "<|enough");
  EXPECT_EQ(filter.Put({}, "<|end"), "");
  EXPECT_EQ(filter.Take(), "<|end");
}

TEST(ChatTest, AMarkerThatTheLengthCutsOffIsNoText) {
  ChatServer chat(kHermes);
  chat.answer = "Sun<tool_call>";
  ChatRequest request = Said("hi");
  request.add_tools()->set_name("f");
  request.mutable_stopping()->set_max_new_tokens(8);  // a token for each character
  const Heard heard = Listen(chat, request);
  EXPECT_EQ(heard.finish.reason(), moe::v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(heard.text, "Sun");
  chat.answer = "Sun<tool";
  request.clear_stopping();
  EXPECT_EQ(Listen(chat, request).text, "Sun<tool") << "it ended by itself";
}

TEST(ChatTest, WithoutToolsACallIsText) {
  ChatServer chat(kHermes);
  chat.answer = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  ChatRequest request = Said("hi");
  request.add_tools()->set_name("f");
  request.mutable_tool_choice()->set_kind(moe::v1::ToolChoice::NONE);
  const Heard heard = Listen(chat, request);
  EXPECT_EQ(heard.text, chat.answer);
  EXPECT_TRUE(heard.calls.empty());
  EXPECT_EQ(heard.finish.reason(), moe::v1::FINISH_REASON_STOP);
}

TEST(ChatTest, APromptMayOpenTheReasoning) {
  ChatServer chat("{{ messages[-1].content }}{{ '</think>'[:0] }}<think>\n");
  chat.answer = "well</think>yes";
  const Heard heard = Listen(chat, Said("hi"));
  EXPECT_EQ(heard.reasoning, "well");
  EXPECT_EQ(heard.text, "yes");
}

TEST(ChatTest, CallsInOneMessageAreBounded) {
  HarnessOptions options;
  options.calls.max_answer_bytes = 4096;
  options.calls.max_unsent_bytes = 1 << 20;
  ChatServer chat(kHermes, options);
  chat.answer = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"" + std::string(1900, 'x') + "\"}}</tool_call>";
  ChatRequest request = Said("hi");
  request.add_tools()->set_name("f");
  EXPECT_EQ(chat.Chat(request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const Heard heard = Listen(chat, request);
  ASSERT_EQ(heard.calls.size(), 1u);
  EXPECT_EQ(heard.calls[0].arguments().size(), 1909u);
}

TEST(ChatTest, NamesInToolsAreLimitedSinceTheyWaitForTheAnswer) {
  ChatServer chat(kHermes);
  std::string properties;
  for (int i = 0; i < 1000; ++i) properties += "\"" + std::to_string(i) + "\": {\"type\": \"string\"},";
  ChatRequest request = Said("hi");
  moe::v1::Tool& tool = *request.add_tools();
  tool.set_name("f");
  tool.set_parameters("{\"properties\": {" + properties + "\"x\": {}}}");
  const grpc::Status status = chat.Chat(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("tools"));
  EXPECT_THAT(status.error_message(), HasSubstr("at most 65536"));
}

TEST(ChatTest, NamesInToolsWaitForMemoryThatOtherRequestsHold) {
  ByteShare* share = nullptr;
  {
    ChatServer chat(kHermes);
    share = TestModel(chat.server.engine()).tool_schemas;
    ASSERT_EQ(share->left(), share->most());
    ChatRequest request = Said("hi");
    request.add_tools()->set_name("f");
    ByteShare::Held others = share->Take(share->most() - 8);
    const grpc::Status status = chat.Chat(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr("tools"), HasSubstr("other requests leave 8")));
    EXPECT_GT(RetrySeconds(status), 0);
    EXPECT_TRUE(chat.Chat(Said("hi")).ok());
    others = {};
    EXPECT_TRUE(chat.Chat(request).ok());
  }
  EXPECT_EQ(share->left(), share->most());
}

TEST(ChatTest, ArgumentsAreADictUnlessTheTemplateShowsThemAsTheyStand) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{{ f.arguments|tojson }}", R"({"x": [1]})"},
      {"{% for k, v in f.arguments.items() %}{{ k }}={{ v }}{% endfor %}", "x=[1]"},
      {"{{ f.arguments if f.arguments is string else f.arguments|tojson }}", R"({"x": [1]})"},
      {"{{ 'a' + f.arguments }}", R"(a{"x":[1]})"},
      {"{{ f.arguments }}", R"({"x":[1]})"},
  };
  const ChatRequest request = ChatRequestOf(R"(messages {role: "assistant" tool_calls {name: "f" arguments: "{\"x\":[1]}"}})");
  for (const auto& [source, text] : kCases) {
    const std::string of_calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set f = c.function %}";
    EXPECT_EQ(ChatServer(of_calls + source + "{% endfor %}{% endfor %}").Prompt(request), text) << source;
  }
}

TEST(ChatTest, ArgumentsThatWereCutOffAreWhatThereIsOfThem) {
  const std::string of_calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set f = c.function %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  ChatServer chat(of_calls + "{% for k, v in f.arguments.items() %}{{ k }}={{ v }};{% endfor %}" + ends);
  const auto cut = [](const std::string& arguments) {
    ChatRequest request = ChatRequestOf(R"(messages {role: "assistant" tool_calls {name: "f"}})");
    request.mutable_messages(0)->mutable_tool_calls(0)->set_arguments(arguments);
    *request.add_messages() = Said("x").messages(0);
    return request;
  };
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"x": "San Fr)", "x=San Fr;"}, {R"({"x": "a", "y)", "x=a;"},    {R"({"x": "a", "y": )", "x=a;"},
      {R"({"x": 1, "y": tr)", "x=1;"},   {R"({"x": 1.5)", "x=1.5;"},      {R"({"x": [1, {"y": "z"}, )", "x=[1, {'y': 'z'}];"},
      {R"({"x": "a\)", "x=a;"},          {R"({"x": "a\ud83d\u)", "x=a;"}, {R"({"x": {"y": {})", "x={'y': {}};"},
  };
  for (const auto& [arguments, text] : kCases) {
    EXPECT_EQ(chat.Prompt(cut(arguments)), text) << arguments;
  }
  for (const char* no_beginning : {"x", "{]", R"({"x": 1}})", R"({"x" "y")", R"(["x")"}) {
    EXPECT_EQ(chat.Chat(cut(no_beginning)).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << no_beginning;
  }
  ChatServer as_text(of_calls + "{{ 'a' + f.arguments }}" + ends);
  EXPECT_EQ(as_text.Prompt(cut(R"({"x": "San Fr)")), R"(a{"x": "San Fr)") << "as it stands";
}

TEST(ChatTest, AMessageOfCallsAloneHasTheContentThatTheTemplateAsksFor) {
  const std::string call = "{{ m.tool_calls[0].function.arguments|tojson }}{{ m.content is none }}";
  const std::pair<std::string, const char*> kCases[] = {
      {"{% if m.content is none %}" + call + "{% endif %}", R"({"x": 1}True)"},
      {"{% if m.content is string %}" + call + "{% endif %}", R"({"x": 1}False)"}};
  const ChatRequest request = ChatRequestOf(R"(messages {role: "assistant" tool_calls {name: "f" arguments: "{\"x\":1}"}})");
  for (const auto& [source, text] : kCases) {
    const std::string of_calls = "{% for m in messages %}{% if m.tool_calls %}";
    EXPECT_EQ(ChatServer(of_calls + source + "{% endif %}{% endfor %}").Prompt(request), text) << source;
  }
}

}  // namespace
}  // namespace moed
