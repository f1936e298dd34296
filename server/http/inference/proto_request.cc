#include "server/http/inference/proto_request.h"

#include <cmath>
#include <utility>

#include "core/base/status.h"
#include "server/http/inference/tensors.h"
#include "server/wire/received_message.h"

namespace moed::http {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using Parameters = google::protobuf::Map<std::string, InferParameter>;
using InputTensor = ModelInferRequest::InferInputTensor;

constexpr size_t kNameBytes = 256;
constexpr size_t kTensors = 64;
constexpr size_t kParameters = 64;
constexpr size_t kUnknownBytes = 1024;

const MessageLimits& Limits() {
  static const MessageLimits limits = [] {
    std::vector<FieldLimit> fields = {
        {.path = "model_name", .bytes = kNameBytes},
        {.path = "model_version", .bytes = kNameBytes},
        {.path = "id", .bytes = kNameBytes},
        {.path = "parameters", .entries = kParameters},
        {.path = "parameters.key", .bytes = kNameBytes},
        {.path = "inputs", .entries = kTensors},
        {.path = "inputs.name", .bytes = kNameBytes},
        {.path = "inputs.datatype", .bytes = kNameBytes},
        {.path = "inputs.shape", .entries = 4 * kTensors},
        {.path = "inputs.parameters", .entries = kParameters},
        {.path = "inputs.parameters.key", .bytes = kNameBytes},
        {.path = "outputs", .entries = kTensors},
        {.path = "outputs.name", .bytes = kNameBytes},
        {.path = "outputs.parameters", .entries = kParameters},
        {.path = "outputs.parameters.key", .bytes = kNameBytes},
        {.path = "raw_input_contents", .entries = kTensors},
    };
    for (const char* contents :
         {"inputs.contents.bool_contents", "inputs.contents.int_contents", "inputs.contents.int64_contents",
          "inputs.contents.uint_contents", "inputs.contents.uint64_contents", "inputs.contents.fp32_contents",
          "inputs.contents.fp64_contents", "inputs.contents.bytes_contents"}) {
      fields.push_back({.path = contents, .entries = kTensors});
    }
    return MessageLimits(*ModelInferRequest::descriptor(), std::move(fields), kUnknownBytes);
  }();
  return limits;
}

absl::StatusOr<Json> ValueOf(const InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return parameter.bool_param();
    case InferParameter::kInt64Param:
      return parameter.int64_param();
    case InferParameter::kUint64Param:
      return parameter.uint64_param();
    case InferParameter::kStringParam:
      return parameter.string_param();
    case InferParameter::kDoubleParam:
      if (!std::isfinite(parameter.double_param())) return InvalidArgument("the value is not finite");
      return parameter.double_param();
    default:
      return InvalidArgument("has no value");
  }
}

// Those of tensors, of which none is offered: shared memory, classification.
absl::Status CheckNone(std::string_view tensor, const Parameters& parameters) {
  if (parameters.empty()) return absl::OkStatus();
  return InvalidArgument(tensor, ": the parameter \"", parameters.begin()->first, "\" is not offered");
}

absl::StatusOr<Json> ElementOf(const InputTensor& input, const std::string* raw) {
  MOED_RETURN_IF_ERROR(CheckShape({input.shape().data(), static_cast<size_t>(input.shape_size())}));
  if (raw == nullptr) return ElementOfContents(input.datatype(), input.contents());
  if (input.has_contents()) return InvalidArgument("has contents beside raw_input_contents");
  return ElementOfBytes(input.datatype(), *raw);
}

absl::Status AddInputs(const ModelInferRequest& message, InferenceValues& values) {
  const int raw = message.raw_input_contents_size();
  if (raw != 0 && raw != message.inputs_size()) {
    return InvalidArgument("raw_input_contents: ", raw, " entries, there are ", message.inputs_size(), " inputs");
  }
  for (int i = 0; i < message.inputs_size(); ++i) {
    const InputTensor& input = message.inputs(i);
    MOED_RETURN_IF_ERROR(CheckNone(input.name(), input.parameters()));
    auto element = ElementOf(input, raw == 0 ? nullptr : &message.raw_input_contents(i));
    if (!element.ok()) return Annotate(element.status(), input.name());
    MOED_RETURN_IF_ERROR(values.Add(input.name(), *std::move(element)));
  }
  return absl::OkStatus();
}

absl::Status AddParameters(const Parameters& parameters, InferenceValues& values) {
  for (const auto& entry : parameters) {
    auto value = ValueOf(entry.second);
    if (!value.ok()) return Annotate(value.status(), entry.first);
    MOED_RETURN_IF_ERROR(values.Add(entry.first, *std::move(value)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string PeekId(const grpc::ByteBuffer& message) { return PeekString(message, ModelInferRequest::kIdFieldNumber, kNameBytes); }

absl::StatusOr<InferenceDraft> ReadModelInfer(grpc::ByteBuffer& bytes, Responses responses) {
  MOED_RETURN_IF_ERROR(Limits().Check(bytes));
  ModelInferRequest message;
  MOED_RETURN_IF_ERROR(ParseMessage(bytes, message));
  MOED_RETURN_IF_ERROR(CheckVersion(message.model_version()));
  InferenceValues values;
  MOED_RETURN_IF_ERROR(AddInputs(message, values));
  MOED_RETURN_IF_ERROR(AddParameters(message.parameters(), values));
  for (const auto& output : message.outputs()) {
    MOED_RETURN_IF_ERROR(CheckOutput(output.name()));
    MOED_RETURN_IF_ERROR(CheckNone(output.name(), output.parameters()));
  }
  InferenceDraft draft;
  MOED_RETURN_IF_ERROR(std::move(values).Read(responses, draft));
  draft.model = std::move(*message.mutable_model_name());
  draft.id = std::move(*message.mutable_id());
  return draft;
}

}  // namespace moed::http
