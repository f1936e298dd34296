// A dictionary of activation paths. Its checksum is made right; estimates of what is accepted are probabilities.
#include "core/expert/learning/activation_paths.h"

#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr uint64_t kModelHash = 0xab;
constexpr int kLayers = 2, kExperts = 3;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const std::string path = folder.Write("paths", fuzz::Sealed(fuzz::Text(data, size)));
  const auto paths = ActivationPaths::Read(path, kModelHash, kLayers, kExperts);
  if (!paths.ok()) return 0;
  std::vector<float> probabilities(kExperts);
  const int32_t chosen[] = {1, 2};
  for (int position = 0; position < kLayers; ++position) {
    for (const PathKey& key : {PathKey{{0, 1}, {1, 2}}, PathKey{{}, {1}}, PathKey{}}) {
      (*paths)->Estimate(position, key, probabilities);
      for (const float p : probabilities) MOED_CHECK(p >= 0 && p <= 1);
      (*paths)->Add(position, key, chosen);
    }
  }
  return 0;
}
