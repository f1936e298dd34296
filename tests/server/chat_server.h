// Chat and ChatStream on a real socket, with templates and answers of a test's own.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "tests/server/server_harness.h"

namespace moed {

inline moe::v1::ChatRequest ChatRequestOf(const std::string& text) {
  moe::v1::ChatRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

inline moe::v1::ChatRequest Said(const std::string& text) {
  moe::v1::ChatRequest request;
  moe::v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.add_content()->set_text(text);
  return request;
}

// A server whose engine takes down the prompts it gets.
struct ChatServer {
  explicit ChatServer(const std::string& chat_template, HarnessOptions options = {}) : server(With(chat_template, options)) {
    server.RunFreely();
  }
  HarnessOptions With(const std::string& chat_template, HarnessOptions options) {
    options.chat_template = chat_template;
    options.engine.max_context = 4096;
    options.engine.max_new_tokens = 4095;
    options.script = [this](const EngineRequest& request) {
      seen = request;
      return tokens.empty() ? ScriptOfText(answer) : ScriptOfTokens();
    };
    return options;
  }
  grpc::Status Chat(const moe::v1::ChatRequest& request, moe::v1::ChatResponse* response = nullptr) {
    grpc::ClientContext context;
    moe::v1::ChatResponse ignored;
    return server.inference().Chat(&context, request, response == nullptr ? &ignored : response);
  }
  // The text that the engine was given; the status where there was none.
  std::string Prompt(const moe::v1::ChatRequest& request) {
    const grpc::Status status = Chat(request);
    return status.ok() ? *TestTokenizer().Decode(seen.prompt, /*skip_special_tokens=*/false) : status.error_message();
  }

  // A delta for each token, with special ones shown where the engine is asked to.
  Script ScriptOfTokens() const {
    Script script;
    for (const TokenId token : tokens) {
      const std::vector<TokenId> one = {token};
      script.deltas.push_back({*TestTokenizer().Decode(one, seen.skip_special_tokens), {TokenInfo{token}}});
    }
    return script;
  }

  std::string answer = "fine";
  std::vector<TokenId> tokens = {};  // the answer, where there are some
  EngineRequest seen;
  ServerHarness server;
};

}  // namespace moed
