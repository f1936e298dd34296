#include "core/kernels/activations.h"

#include "core/base/buffer.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

constexpr InputForms kForms[] = {{.values = true}, {.codes = true}, kAllForms};

TEST(InputForms, AreWhatTheFormatsRead) {
  for (const Format& format : Formats()) {
    const InputForms forms = InputForms::Of({format.id});
    EXPECT_EQ(forms.codes, format.integer_activations()) << format.name;
    EXPECT_EQ(forms.values, !format.integer_activations()) << format.name;
  }
  EXPECT_TRUE(InputForms::Of({FormatId::kQ4, FormatId::kF32}).Cover(kAllForms));
  EXPECT_TRUE(kAllForms.Cover(kForms[0]) && kAllForms.Cover(kForms[1]));
  EXPECT_FALSE(kForms[0].Cover(kForms[1]) || kForms[1].Cover(kForms[0]) || kForms[0].Cover(kAllForms));
}

TEST(Activations, FillTheirStorageAndHaveOnlyTheFormsAskedFor) {
  for (const InputForms forms : kForms) {
    for (const int cols : {1, 32, 33, 100}) {
      const int tokens = 5;
      const size_t bytes = ActivationBytes(tokens, cols, forms);
      EXPECT_EQ(ActivationBytes(tokens, cols),
                ActivationBytes(tokens, cols, kForms[0]) + ActivationBytes(tokens, cols, kForms[1]));
      Buffer storage = Buffer::Allocate(bytes).value();
      const Activations all = ActivationsIn(storage.span().first(bytes), tokens, cols, forms);  // ends the process if too small
      EXPECT_EQ(all.values != nullptr, forms.values);
      EXPECT_EQ(all.codes != nullptr, forms.codes);
      EXPECT_EQ(all.scales != nullptr, forms.codes);
      EXPECT_EQ(all.sums != nullptr, forms.codes);
      const Activations last = all.Rows(4, 1);
      EXPECT_EQ(last.tokens, 1);
      EXPECT_EQ(last.cols, cols);
      if (forms.values) {
        EXPECT_EQ(last.values - all.values, 4 * Blocks(cols) * 32);
      }
      if (forms.codes) {
        EXPECT_EQ(last.codes - all.codes, 4 * Blocks(cols) * 32);
        EXPECT_EQ(last.scales - all.scales, 4 * Blocks(cols));
        EXPECT_EQ(last.sums - all.sums, 4 * Blocks(cols));
      }
    }
  }
}

}  // namespace
}  // namespace moed
