// A GGUF file: what is accepted lies inside the file, and its metadata become a spec and a tokenizer or an error.
#include "tests/fuzz/foreign_bytes.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/gguf_file.h"
#include "tools/pack/gguf/tokenizer.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto read = ReadGguf(MakeMemoryFile("fuzz", std::string(fuzz::Text(data, size))));
  if (!read.ok()) return 0;
  GgufModel model;
  model.files.push_back(read->file);
  model.metadata = std::move(read->metadata);
  for (GgufTensor& tensor : read->tensors) {
    MOED_CHECK(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
    const std::string name = tensor.name;
    MOED_CHECK(model.tensors.emplace(name, std::move(tensor)).second);
  }
  const auto architecture = ArchitectureOf(model.metadata);
  if (architecture.ok()) (void)(*architecture)->read_spec(model);
  (void)TokenizerJson(model.metadata);
  return 0;
}
