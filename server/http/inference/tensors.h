// Tensors of the Open Inference Protocol that have one element, as values of JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/v2.pb.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// INVALID_ARGUMENT for any shape but [1].
absl::Status CheckShape(std::span<const int64_t> shape);

// The element, by where it stands; its datatype decides whether it is a boolean, a number or a text. INVALID_ARGUMENT: a datatype
// that is not known or not read, more or fewer elements than one, a text that is no UTF-8, a number that is not finite.
absl::StatusOr<Json> ElementOfBytes(std::string_view datatype, std::string_view bytes);
absl::StatusOr<Json> ElementOfContents(std::string_view datatype, const inference::InferTensorContents& contents);
absl::StatusOr<Json> ElementOfJson(std::string_view datatype, const Json& data);

// A tensor of the datatype BYTES with one element, as bytes.
std::string BytesOfText(std::string_view text);

}  // namespace moed::http
