#include "server/http/inference/reply.h"

#include "core/base/status.h"
#include "server/http/inference/tensors.h"

namespace moed::http {
namespace {

using inference::ModelInferResponse;
using moe::v1::Finish;
using moe::v1::GenerateResponse;

std::string_view ReasonName(moe::v1::FinishReason reason) {
  switch (reason) {
    case moe::v1::FINISH_REASON_STOP:
    case moe::v1::FINISH_REASON_STOP_STRING:
      return "stop";
    case moe::v1::FINISH_REASON_TIME_LIMIT:
      return "time_limit";
    case moe::v1::FINISH_REASON_CONTEXT:
      return "context";
    default:
      return "length";
  }
}

Json ParametersOf(const Finish* finish) {
  Json parameters = {{"triton_final_response", finish != nullptr}};
  if (finish == nullptr) return parameters;
  parameters["finish_reason"] = ReasonName(finish->reason());
  parameters["prompt_tokens"] = finish->usage().prompt_tokens();
  parameters["cached_tokens"] = finish->usage().cached_tokens();
  parameters["completion_tokens"] = finish->usage().completion_tokens();
  if (finish->session_tokens() > 0) parameters["session_tokens"] = finish->session_tokens();
  return parameters;
}

void SetParameters(const Json& parameters, ModelInferResponse& response) {
  for (const auto& [name, value] : parameters.items()) {
    inference::InferParameter& parameter = (*response.mutable_parameters())[name];
    if (value.is_boolean()) {
      parameter.set_bool_param(value.get<bool>());
    } else if (value.is_string()) {
      parameter.set_string_param(value.get<std::string>());
    } else {
      parameter.set_int64_param(value.get<int64_t>());
    }
  }
}

Json NamesJson(const ResponseNames& names) {
  Json json = {{"model_name", names.model}, {"model_version", kModelVersion}};
  if (!names.id.empty()) json["id"] = names.id;
  return json;
}

Json ErrorJson(const ApiError& error) { return {{"error", MessageOf(error)}}; }

class InferenceWriter : public AnswerWriter<GenerateResponse> {
 public:
  std::string ErrorEvent(const grpc::Status& status) override {
    return StrCat("data: ", Dumped(ErrorJson(ErrorOf(status, InferenceFieldNames()))), "\n\n");
  }
  HttpReply Error(const grpc::Status& status) override { return InferenceError(ErrorOf(status, InferenceFieldNames())); }
};

// Of infer, which does not stream.
class InferWriter final : public InferenceWriter {
 public:
  InferWriter(ResponseNames names, bool binary) : names_(std::move(names)), binary_(binary) {}
  std::string Events(const GenerateResponse&) override { return ""; }
  std::string LastEvents() override { return ""; }

  HttpReply Whole(const GenerateResponse& answer) override {
    Json json = NamesJson(names_);
    json["parameters"] = ParametersOf(&answer.finish());
    Json output = {{"name", kTextOutput}, {"datatype", "BYTES"}, {"shape", {1}}};
    const std::string bytes = binary_ ? BytesOfText(answer.text()) : "";
    if (binary_) {
      output["parameters"] = {{"binary_data_size", bytes.size()}};
    } else {
      output["data"] = Json::array({answer.text()});
    }
    json["outputs"] = Json::array({std::move(output)});
    std::string body = Dumped(json);
    if (!binary_) return {.body = std::move(body)};
    const std::string length = StrCat(body.size());
    return {.content_type = "application/octet-stream",
            .body = std::move(body) + bytes,
            .headers = {{"inference-header-content-length", length}}};
  }

 private:
  const ResponseNames names_;
  const bool binary_;
};

class GenerateWriter final : public InferenceWriter {
 public:
  GenerateWriter(ResponseNames names, bool in_parts) : names_(std::move(names)), texts_(in_parts) {}

  std::string Events(const GenerateResponse& message) override {
    const std::optional<std::string> text = texts_.Take(message);
    return text ? StrCat("data: ", Dumped(Object(*text, message)), "\n\n") : "";
  }
  std::string LastEvents() override { return ""; }
  HttpReply Whole(const GenerateResponse& answer) override { return {.body = Dumped(Object(answer.text(), answer))}; }

 private:
  Json Object(const std::string& text, const GenerateResponse& message) {
    Json json = NamesJson(names_);
    json[kTextOutput] = text;
    json["parameters"] = ParametersOf(message.has_finish() ? &message.finish() : nullptr);
    return json;
  }

  const ResponseNames names_;
  ResponseTexts texts_;
};

}  // namespace

ModelInferResponse MakeResponse(const ResponseNames& names, std::string_view text, const Finish* finish) {
  ModelInferResponse response;
  response.set_model_name(names.model);
  response.set_model_version(std::string(kModelVersion));
  response.set_id(names.id);
  SetParameters(ParametersOf(finish), response);
  auto& output = *response.add_outputs();
  output.set_name(std::string(kTextOutput));
  output.set_datatype("BYTES");
  output.add_shape(1);
  response.add_raw_output_contents(BytesOfText(text));
  return response;
}

inference::ModelStreamInferResponse MakeStreamError(const ResponseNames& names, std::string message) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(std::move(message));
  response.mutable_infer_response()->set_id(names.id);
  SetParameters({{"triton_final_response", true}}, *response.mutable_infer_response());
  return response;
}

std::unique_ptr<AnswerWriter<GenerateResponse>> MakeInferWriter(const AnswerIdentity& identity, const InferenceDraft& draft) {
  return std::make_unique<InferWriter>(ResponseNames{identity.model, draft.id}, draft.binary_output);
}

std::unique_ptr<AnswerWriter<GenerateResponse>> MakeGenerateWriter(const AnswerIdentity& identity, const InferenceDraft& draft) {
  return std::make_unique<GenerateWriter>(ResponseNames{identity.model, draft.id}, draft.asks_for_parts.value_or(true));
}

std::string MessageOf(const ApiError& error) {
  const bool named = error.parameter.empty() || error.message.starts_with(error.parameter);
  return named ? error.message : StrCat(error.parameter, ": ", error.message);
}

HttpReply InferenceError(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = Dumped(ErrorJson(error))};
  AddRetryAfter(error, reply);
  return reply;
}

grpc::Status InferenceStatus(const ApiError& error) {
  constexpr std::pair<int, grpc::StatusCode> kCodes[] = {
      {400, grpc::StatusCode::INVALID_ARGUMENT},
      {401, grpc::StatusCode::UNAUTHENTICATED},
      {403, grpc::StatusCode::PERMISSION_DENIED},
      {404, grpc::StatusCode::NOT_FOUND},
      {409, grpc::StatusCode::ABORTED},
      {413, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {429, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {499, grpc::StatusCode::CANCELLED},
      {503, grpc::StatusCode::UNAVAILABLE},
      {504, grpc::StatusCode::DEADLINE_EXCEEDED},
  };
  grpc::StatusCode code = grpc::StatusCode::INTERNAL;
  for (const auto& row : kCodes) {
    if (row.first == error.status) code = row.second;
  }
  return {code, MessageOf(error)};
}

}  // namespace moed::http
