// Requests of the Open Inference Protocol, as messages of gRPC and as bodies of HTTP.
#include <grpcpp/support/slice.h>

#include "core/base/check.h"
#include "core/base/utf8.h"
#include "server/http/inference/json_request.h"
#include "server/http/inference/proto_request.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;
using namespace moed::http;

namespace {

void Check(const absl::StatusOr<InferenceDraft>& draft) {
  if (draft.ok()) MOED_CHECK(IsValidUtf8(draft->request.text()));
}

}  // namespace

// The first byte is where the JSON ends and tensors begin.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const grpc::Slice slice(data, size);
  grpc::ByteBuffer message(&slice, 1);
  (void)PeekId(message);
  Check(ReadModelInfer(message, Responses::kMany));
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  Check(ReadInferBody(body, ""));
  Check(ReadInferBody(body, std::to_string(data[0])));
  Check(ReadGenerateBody(body, Responses::kOne));
  return 0;
}
