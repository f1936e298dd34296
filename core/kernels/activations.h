// The input of products: its forms, and where they lie in a piece of storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/quant/format.h"

namespace moed {

// Which forms of its input a product reads: one with a float format the values, one with a block format codes, scales and sums.
struct InputForms {
  bool values = false;
  bool codes = false;

  // Those that products with all of these formats read.
  static InputForms Of(std::initializer_list<FormatId> formats);
  InputForms operator|(InputForms other) const { return {values || other.values, codes || other.codes}; }
  bool Cover(InputForms other) const { return values >= other.values && codes >= other.codes; }
};
inline constexpr InputForms kAllForms = {.values = true, .codes = true};

// Rows of activations in the forms they were prepared in; the other pointers are null. Padding columns are zero.
struct Activations {
  int tokens = 0;
  int cols = 0;                   // unpadded
  const float* values = nullptr;  // (tokens, Blocks(cols) * 32)
  const int8_t* codes = nullptr;  // (tokens, Blocks(cols) * 32)
  const float* scales = nullptr;  // (tokens, Blocks(cols))
  const int32_t* sums = nullptr;  // (tokens, Blocks(cols)): sum of the block's codes

  InputForms forms() const { return {values != nullptr, codes != nullptr}; }
  Activations Rows(int first, int count) const;
  // Without the forms that are not among these.
  Activations Only(InputForms forms) const;
};

// 64-byte aligned storage of that many bytes holds such activations.
size_t ActivationBytes(int tokens, int cols, InputForms forms = kAllForms);
Activations ActivationsIn(std::span<std::byte> storage, int tokens, int cols, InputForms forms);

}  // namespace moed
