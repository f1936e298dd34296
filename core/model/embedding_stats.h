// Of an embedding that stays in the store (stored_embedding.h).
#pragma once

#include <cstdint>

namespace moed {

struct EmbeddingStats {
  uint64_t rows = 0;  // that tokens wanted
  uint64_t reads = 0;
  uint64_t read_errors = 0;  // reads that failed
  uint64_t damaged = 0;      // reads of rows that are no more what they were
  uint64_t read_bytes = 0;   // of panels, without what is read around them
};

}  // namespace moed
