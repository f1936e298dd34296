// A checkpoint's weights: what is accepted lies inside the file.
#include "tools/pack/safetensors.h"

#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = ReadSafetensors(MakeMemoryFile("fuzz", std::string(fuzz::Text(data, size))));
  if (!tensors.ok()) return 0;
  for (const SourceTensor& tensor : *tensors) MOED_CHECK(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
  return 0;
}
