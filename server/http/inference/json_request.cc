#include "server/http/inference/json_request.h"

#include <charconv>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "server/http/inference/tensors.h"

namespace moed::http {
namespace {

constexpr size_t kMostTensors = 64;

// Where the JSON ends and tensors begin.
absl::StatusOr<size_t> JsonBytes(const std::string& body, std::string_view header_length) {
  if (header_length.empty()) return body.size();
  size_t length = 0;
  const auto [end, error] = std::from_chars(header_length.data(), header_length.data() + header_length.size(), length);
  const bool whole = error == std::errc() && end == header_length.data() + header_length.size();
  if (whole && length <= body.size()) return length;
  return InvalidArgument("inference-header-content-length: \"", header_length.substr(0, 32), "\" is not from 0 to the body's ",
                         body.size(), " bytes");
}

// The bytes after the JSON, of which each tensor takes its own.
class BinaryPart {
 public:
  explicit BinaryPart(std::string_view bytes) : rest_(bytes) {}
  absl::StatusOr<std::string_view> Take(const Json& size) {
    MOED_ASSIGN_OR_RETURN(const int64_t bytes, WholeNumber("binary_data_size", size, 0));
    if (static_cast<uint64_t>(bytes) > rest_.size()) {
      return InvalidArgument("binary_data_size is ", bytes, ", and ", rest_.size(), " bytes are left of the body");
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

struct Input {
  std::string name, datatype;
  Json shape;
  std::optional<Json> data, binary_data_size;
};

absl::Status ApplyShape(const Json& value, Input& input) {
  input.shape = value;
  return absl::OkStatus();
}
absl::Status ApplyData(const Json& value, Input& input) {
  input.data = value;
  return absl::OkStatus();
}
absl::Status ApplyBinarySize(const Json& value, Input& input) {
  input.binary_data_size = value;
  return absl::OkStatus();
}
constexpr Parameter<Input> kInputParameters[] = {{"binary_data_size", ApplyBinarySize}};
absl::Status ApplyInputParameters(const Json& value, Input& input) { return ReadMembers(value, kInputParameters, input); }
constexpr Parameter<Input> kInputMembers[] = {{"name", Into<&Input::name>},
                                              {"datatype", Into<&Input::datatype>},
                                              {"shape", ApplyShape},
                                              {"data", ApplyData},
                                              {"parameters", ApplyInputParameters}};

absl::Status CheckJsonShape(const Json& shape) {
  if (!shape.is_array()) return InvalidArgument("its shape is ", ShownJson(shape), ", allowed is [1]");
  std::vector<int64_t> dimensions;
  for (const Json& dimension : shape) {
    MOED_ASSIGN_OR_RETURN(dimensions.emplace_back(),
                          WholeNumber("a dimension of its shape", dimension, std::numeric_limits<int64_t>::min()));
  }
  return CheckShape(dimensions);
}

absl::StatusOr<Json> ElementOf(const Input& input, BinaryPart& binary) {
  MOED_RETURN_IF_ERROR(CheckJsonShape(input.shape));
  if (input.data.has_value() == input.binary_data_size.has_value()) {
    return InvalidArgument("has ", input.data ? "both" : "neither", " data and binary_data_size, allowed is one of them");
  }
  if (input.data) return ElementOfJson(input.datatype, *input.data);
  MOED_ASSIGN_OR_RETURN(const std::string_view bytes, binary.Take(*input.binary_data_size));
  return ElementOfBytes(input.datatype, bytes);
}

absl::Status AddInputs(const Json& inputs, BinaryPart& binary, InferenceValues& values) {
  if (inputs.is_array() && inputs.size() > kMostTensors) {
    return InvalidArgument("inputs: ", inputs.size(), " entries, at most ", kMostTensors, " are allowed");
  }
  const auto add = [&](const Json& json) -> absl::Status {
    Input input;
    MOED_RETURN_IF_ERROR(ReadMembers(json, kInputMembers, input));
    auto element = ElementOf(input, binary);
    return element.ok() ? values.Add(input.name, *std::move(element)) : Annotate(element.status(), input.name.substr(0, 64));
  };
  return InParameter("inputs", ReadElements(inputs, add));
}

struct Output {
  std::string name;
  std::optional<bool> binary;
};
constexpr Parameter<Output> kOutputParameters[] = {{"binary_data", Into<&Output::binary>}};
absl::Status ApplyOutputParameters(const Json& value, Output& output) { return ReadMembers(value, kOutputParameters, output); }
constexpr Parameter<Output> kOutputMembers[] = {{"name", Into<&Output::name>}, {"parameters", ApplyOutputParameters}};

absl::Status ReadOutputs(const Json& outputs, std::optional<bool>& binary) {
  return InParameter("outputs", ReadElements(outputs, [&](const Json& json) -> absl::Status {
                       Output output;
                       MOED_RETURN_IF_ERROR(ReadMembers(json, kOutputMembers, output));
                       if (output.binary) binary = output.binary;
                       return CheckOutput(output.name);
                     }));
}

}  // namespace

absl::StatusOr<InferenceDraft> ReadInferBody(const std::string& body, std::string_view header_length) {
  MOED_ASSIGN_OR_RETURN(const size_t json_bytes, JsonBytes(body, header_length));
  MOED_ASSIGN_OR_RETURN(Json json, ParseJson(std::string_view(body).substr(0, json_bytes)));
  if (!json.is_object()) return InvalidArgument("the body must begin with a JSON object");
  BinaryPart binary(std::string_view(body).substr(json_bytes));
  InferenceDraft draft;
  InferenceValues values;
  std::optional<bool> output_is_binary;
  for (auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    if (name == "id") {
      auto id = StringOf(value);
      if (!id.ok()) return InParameter(name, id.status());
      draft.id = *std::move(id);
    } else if (name == "inputs") {
      MOED_RETURN_IF_ERROR(AddInputs(value, binary, values));
    } else if (name == "parameters") {
      MOED_RETURN_IF_ERROR(values.AddMembers(name, std::move(value)));
    } else if (name == "outputs") {
      MOED_RETURN_IF_ERROR(ReadOutputs(value, output_is_binary));
    } else {
      return InvalidArgument(name.substr(0, 64), ": unknown member; there are id, inputs, outputs and parameters");
    }
  }
  if (binary.left() > 0) return InvalidArgument("the body: ", binary.left(), " bytes after its JSON are of no input");
  MOED_RETURN_IF_ERROR(std::move(values).Read(Responses::kOne, draft));
  draft.binary_output = output_is_binary.value_or(draft.binary_output);
  return draft;
}

absl::StatusOr<InferenceDraft> ReadGenerateBody(const std::string& body, Responses responses) {
  MOED_ASSIGN_OR_RETURN(Json json, ParseJson(body));
  if (!json.is_object()) return InvalidArgument("the body must be a JSON object");
  InferenceDraft draft;
  InferenceValues values;
  for (auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    if (name == "id") {
      auto id = StringOf(value);
      if (!id.ok()) return InParameter(name, id.status());
      draft.id = *std::move(id);
    } else if (name == "parameters") {
      MOED_RETURN_IF_ERROR(values.AddMembers(name, std::move(value)));
    } else {
      MOED_RETURN_IF_ERROR(values.Add(name, std::move(value)));
    }
  }
  MOED_RETURN_IF_ERROR(std::move(values).Read(responses, draft));
  return draft;
}

}  // namespace moed::http
