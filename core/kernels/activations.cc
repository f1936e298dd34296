#include "core/kernels/activations.h"

#include "core/base/buffer.h"

namespace moed {

InputForms InputForms::Of(std::initializer_list<FormatId> formats) {
  InputForms forms;
  for (const FormatId format : formats) {
    const bool integers = FormatOf(format).integer_activations();
    forms = forms | InputForms{.values = !integers, .codes = integers};
  }
  return forms;
}

Activations Activations::Only(InputForms forms) const {
  Activations only = *this;
  if (!forms.values) only.values = nullptr;
  if (!forms.codes) only.codes = nullptr, only.scales = nullptr, only.sums = nullptr;
  return only;
}

Activations Activations::Rows(int first, int count) const {
  const int64_t block = int64_t{first} * Blocks(cols);
  Activations rows{.tokens = count, .cols = cols};
  if (values != nullptr) rows.values = values + block * kBlockColumns;
  if (codes != nullptr) {
    rows.codes = codes + block * kBlockColumns;
    rows.scales = scales + block;
    rows.sums = sums + block;
  }
  return rows;
}

size_t ActivationBytes(int tokens, int cols, InputForms forms) {
  const size_t blocks = static_cast<size_t>(tokens) * Blocks(cols);
  size_t bytes = 0;
  if (forms.values) bytes += Arena::Rounded(blocks * kBlockColumns * sizeof(float));
  if (forms.codes) {
    bytes += Arena::Rounded(blocks * kBlockColumns * sizeof(int8_t)) + Arena::Rounded(blocks * sizeof(float)) +
             Arena::Rounded(blocks * sizeof(int32_t));
  }
  return bytes;
}

Activations ActivationsIn(std::span<std::byte> storage, int tokens, int cols, InputForms forms) {
  const size_t blocks = static_cast<size_t>(tokens) * Blocks(cols);
  Arena arena(storage);
  Activations activations{.tokens = tokens, .cols = cols};
  if (forms.values) activations.values = arena.Take<float>(blocks * kBlockColumns).data();
  if (forms.codes) {
    activations.codes = arena.Take<int8_t>(blocks * kBlockColumns).data();
    activations.scales = arena.Take<float>(blocks).data();
    activations.sums = arena.Take<int32_t>(blocks).data();
  }
  return activations;
}

}  // namespace moed
