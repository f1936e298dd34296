// What policy and predictor learned. Its checksum is made right; with what is accepted both go on.
#include "core/expert/learning/learned_state.h"

#include "tests/expert/learned_parts.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const std::string path = folder.Write("learned", fuzz::Sealed(fuzz::Text(data, size)));
  LearnedParts parts(4096);
  if (!parts.Take({path, 0xab, "parts"}).ok()) return 0;
  parts.Learn(3);
  MOED_CHECK(!testing::Test::HasFailure());
  return 0;
}
