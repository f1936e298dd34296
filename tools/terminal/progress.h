// How far a long pass over bytes is: one line that is redrawn on a terminal, a line every few seconds elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/base/clock.h"

namespace moed {

// Not synchronised.
class Progress {
 public:
  using AmountText = std::string (*)(double amount);
  static std::string Bytes(double amount);
  // `verb`: "packing". What is below `start` was there before and does not count for the rate.
  Progress(std::string verb, uint64_t total, uint64_t start, std::FILE* out, const Clock& clock, AmountText amount = Bytes);

  void Update(uint64_t done);
  // The last line, with the whole time; call it once, at the end.
  void Finish();
  // Ends a redrawn line, so that what is printed next stands alone.
  void Break();

  // "packing 12.0 MiB of 1.0 GiB (1 %), 210.0 MiB/s, 0:05 left"
  std::string Line() const;

 private:
  const std::string verb_;
  const uint64_t total_;
  const uint64_t start_;
  std::FILE* const out_;
  const Clock& clock_;
  const AmountText amount_;
  const bool terminal_;
  const int64_t begin_nanos_;
  int64_t last_print_nanos_;
  uint64_t done_;
  bool line_open_ = false;
};

}  // namespace moed
