#include "server/http/inference/metadata.h"

#include "core/base/version.h"
#include "server/http/inference/request.h"

namespace moed::http {
namespace {

template <class Tensor>
void SetText(std::string_view name, Tensor& tensor) {
  tensor.set_name(std::string(name));
  tensor.set_datatype("BYTES");
  tensor.add_shape(1);
}

}  // namespace

inference::ServerMetadataResponse ServerMetadata() {
  inference::ServerMetadataResponse metadata;
  metadata.set_name("moed");
  metadata.set_version(BuildVersion());
  for (const char* extension : {"binary_tensor_data", "generate", "parameters"}) metadata.add_extensions(extension);
  return metadata;
}

inference::ModelMetadataResponse ModelMetadata(std::string_view name) {
  inference::ModelMetadataResponse metadata;
  metadata.set_name(std::string(name));
  metadata.add_versions(std::string(kModelVersion));
  metadata.set_platform("moed");
  SetText(kTextInput, *metadata.add_inputs());
  SetText(kTextOutput, *metadata.add_outputs());
  return metadata;
}

std::optional<ApiError> ModelRefusal(const ModelNames& models, const std::string& name, std::string_view version) {
  if (auto refusal = models.Refusal(name)) return refusal;
  if (const absl::Status known = CheckVersion(version); !known.ok()) return ErrorOf(known);
  return std::nullopt;
}

}  // namespace moed::http
