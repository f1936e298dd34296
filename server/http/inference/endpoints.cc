#include "server/http/inference/endpoints.h"

#include <optional>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "server/http/api/endpoint.h"
#include "server/http/api/percent_decoded.h"
#include "server/http/inference/json_request.h"
#include "server/http/inference/metadata.h"
#include "server/http/inference/reply.h"

namespace moed::http {
namespace {

constexpr std::string_view kModelsPath = "/v2/models/";
constexpr std::string_view kVersions = "/versions/";

struct ModelPath {
  std::string name;
  std::string version;  // "" where the path has none
  std::string action;   // likewise: "infer", "ready"
};

// A name may have slashes, so that the path is read from its end.
ModelPath ReadModelPath(std::string_view path, std::initializer_list<std::string_view> actions) {
  ModelPath found;
  path.remove_prefix(kModelsPath.size());
  const size_t slash = path.rfind('/');
  for (const std::string_view action : actions) {
    if (slash == std::string_view::npos || path.substr(slash + 1) != action) continue;
    found.action = action;
    path = path.substr(0, slash);
    break;
  }
  const size_t versions = path.rfind(kVersions);
  if (versions != std::string_view::npos) {
    found.version = path.substr(versions + kVersions.size());
    path = path.substr(0, versions);
  }
  found.name = PercentDecoded(path);
  return found;
}

// Of what another server has behind the name of a model that is served here.
std::optional<ApiError> NotOffered(const ModelNames& models, std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash < kModelsPath.size()) return std::nullopt;
  const ModelPath outer = ReadModelPath(path.substr(0, slash), {});
  if (ModelRefusal(models, outer.name, outer.version)) return std::nullopt;
  return ApiError{.status = 404,
                  .message = StrCat("\"", path.substr(slash + 1, 64), "\" is not offered; after a model's name comes ready")};
}

Json TensorsJson(const google::protobuf::RepeatedPtrField<inference::ModelMetadataResponse::TensorMetadata>& tensors) {
  Json json = Json::array();
  for (const auto& tensor : tensors) {
    json.push_back({{"name", tensor.name()}, {"datatype", tensor.datatype()}, {"shape", Json(tensor.shape())}});
  }
  return json;
}

}  // namespace

HttpReply DescribeServer() {
  const inference::ServerMetadataResponse metadata = ServerMetadata();
  return {.body =
              Dumped({{"name", metadata.name()}, {"version", metadata.version()}, {"extensions", Json(metadata.extensions())}})};
}

HttpReply TellReady(const Daemon& daemon) {
  if (daemon.serves()) return {.body = Dumped({{"ready", true}})};
  return InferenceError({.status = 503, .message = "the daemon does not serve, or the server is ending"});
}

HttpReply DescribeModel(const Daemon& daemon, const ModelNames& models, std::string_view path) {
  const ModelPath wanted = ReadModelPath(path, {"ready"});
  if (const auto refusal = ModelRefusal(models, wanted.name, wanted.version))
    return InferenceError(NotOffered(models, path).value_or(*refusal));
  if (!wanted.action.empty())
    return daemon.serves() ? HttpReply{.body = Dumped({{"name", wanted.name}, {"ready", true}})} : TellReady(daemon);
  const inference::ModelMetadataResponse metadata = ModelMetadata(wanted.name);
  return {.body = Dumped({{"name", metadata.name()},
                          {"versions", Json(metadata.versions())},
                          {"platform", metadata.platform()},
                          {"inputs", TensorsJson(metadata.inputs())},
                          {"outputs", TensorsJson(metadata.outputs())}})};
}

void HandleInference(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kInfer = "infer", kGenerate = "generate", kGenerateStream = "generate_stream";
  const HttpRequest& request = exchange->request();
  const ModelPath wanted = ReadModelPath(request.path, {kInfer, kGenerate, kGenerateStream});
  if (wanted.action.empty()) {
    return exchange->Reply(
        InferenceError({.status = 404, .message = "after a model's name come infer, generate or generate_stream"}));
  }
  if (const auto refusal = ModelRefusal(models, wanted.name, wanted.version)) return exchange->Reply(InferenceError(*refusal));
  const bool infers = wanted.action == kInfer;
  const auto read = [&](const std::string& body) -> absl::StatusOr<InferenceDraft> {
    auto draft = infers ? ReadInferBody(body, request.Value("inference-header-content-length"))
                        : ReadGenerateBody(body, wanted.action == kGenerate ? Responses::kOne : Responses::kMany);
    if (draft.ok()) draft->model = wanted.name;
    return draft;
  };
  AnswerByModel<moe::v1::GenerateResponse>(
      daemon, models, exchange, {"infer-", InferenceError}, read, infers ? MakeInferWriter : MakeGenerateWriter,
      [](auto& stub, auto* context, const auto* message, auto* call) { stub.GenerateStream(context, message, call); },
      [](auto& stub, auto* context, const auto* message, auto* response, auto* call) {
        stub.Generate(context, message, response, call);
      });
}

}  // namespace moed::http
