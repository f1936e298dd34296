// Prints a digest of what each operation of the scalar table gives, so that processors can be compared: a line per operation.
// The inputs come from integers alone, since mathematical libraries differ.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/kernel_table.h"
#include "core/quant/format.h"

namespace moed {
namespace {

class Inputs {
 public:
  uint32_t Bits() { return random_(); }
  // In (-range, range).
  float Number(float range) { return static_cast<float>(static_cast<int32_t>(random_() | 1)) * 0x1p-31f * range; }
  std::vector<float> Numbers(size_t count, float range) {
    std::vector<float> numbers(count);
    for (float& number : numbers) number = Number(range);
    return numbers;
  }

 private:
  std::mt19937 random_{1};
};

// Every NaN counts as the same.
template <class T>
void Print(const char* name, const std::vector<T>& values) {
  uint64_t digest = 1469598103934665603u;  // FNV-1a
  for (const T value : values) {
    uint32_t bits = 0x7fc00000;
    if (!std::isnan(static_cast<double>(value))) {
      bits = 0;
      std::memcpy(&bits, &value, sizeof(value));
    }
    digest = (digest ^ bits) * 1099511628211u;
  }
  std::printf("%s %016llx\n", name, static_cast<unsigned long long>(digest));
}

void PrintProducts(Inputs& inputs) {
  constexpr int kTokens = 3, kRows = 30, kBlocks = 8, kCols = 230;
  std::vector<float> values(kTokens * kBlocks * kBlockColumns), scales(kTokens * kBlocks);
  std::vector<int8_t> codes(values.size());
  std::vector<int32_t> sums(scales.size());
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<float> x = inputs.Numbers(kCols, 4.0f);
    const int block = t * kBlocks;
    kScalarKernels.prepare({x.data(), kCols, values.data() + block * kBlockColumns, codes.data() + block * kBlockColumns,
                            scales.data() + block, sums.data() + block});
  }
  Print("codes", codes);
  Print("scales", scales);
  Print("sums", sums);
  for (const Format& format : Formats()) {
    std::vector<unsigned char> weights(format.panel_block_bytes * Panels(kRows) *
                                       CeilDiv(kBlocks * kBlockColumns, format.block_columns));
    // Without the highest bit of an exponent: floats and scales stay below 2.
    for (unsigned char& byte : weights) byte = static_cast<unsigned char>(inputs.Bits() & 0xbf);
    std::vector<float> output(kTokens * kRows);
    kScalarKernels.mat_mul.of[static_cast<int>(format.id)](
        {weights.data(), kRows, kBlocks, kTokens, values.data(), codes.data(), scales.data(), sums.data(), output.data(), kRows},
        0, Panels(kRows));
    Print(std::string(format.name).c_str(), output);
  }
}

void PrintOthers(Inputs& inputs) {
  constexpr int kCount = 2000;
  const std::vector<float> x = inputs.Numbers(kCount, 50.0f), other = inputs.Numbers(kCount, 2.0f);
  std::vector<float> y(kCount);
  kScalarKernels.rms_norm(x.data(), other.data(), 1e-6f, kCount, y.data());
  Print("rms norm", y);
  kScalarKernels.swi_glu(x.data(), other.data(), kCount, y.data());
  Print("silu", y);
  kScalarKernels.ge_glu(x.data(), other.data(), kCount, y.data());
  Print("gelu", y);
  y = x;
  kScalarKernels.squared_relu(y.data(), kCount);
  Print("squared relu", y);
  y = x;
  kScalarKernels.soft_cap(y.data(), 30.0f, kCount);
  Print("soft cap", y);
  y = x;
  kScalarKernels.sigmoid_gate(y.data(), other.data(), kCount);
  Print("sigmoid gate", y);
  y = x;
  const float decay = 0.9f, rate = 0.6f;
  std::vector<float> read(kCount / 10);
  StateArguments through_states = {.query = x.data(),
                                   .key = other.data(),
                                   .value = other.data() + 100,
                                   .decay = &decay,
                                   .rate = &rate,
                                   .state = y.data(),
                                   .output = read.data(),
                                   .state_stride = kCount / 10,
                                   .tokens = 1,
                                   .key_dim = 10,
                                   .columns = kCount / 10,
                                   .scale = 0.3f};
  kScalarKernels.delta_rule(through_states);
  Print("delta rule", y);
  Print("delta rule's outputs", read);
  y = x;
  through_states.decay = other.data() + 200;
  through_states.decay_by_channel = true;
  kScalarKernels.delta_rule(through_states);
  Print("delta rule by channel", y);
  Print("its outputs", read);
  y = x;
  through_states.decay = &decay;
  through_states.skip = 0.3f;
  kScalarKernels.state_space(through_states);
  Print("state space", y);
  Print("state space's outputs", read);
  y = x;
  kScalarKernels.softmax(y.data(), kCount);
  Print("softmax", y);
  y = x;
  kScalarKernels.add_scaled(y.data(), other.data(), 0.37f, kCount);
  Print("add scaled", y);
  y = x;
  kScalarKernels.rope({y.data(), 1, kCount, 12345.0f, other.data()});
  Print("rope", y);
  constexpr int kHeadDim = 5, kPages = 6, kTokens = kPages * kKvPageTokens;
  for (int format = 0; format < kKvFormatCount; ++format) {
    const KvFormat kv_format = static_cast<KvFormat>(format);
    const int64_t row_bytes = KvRowBytes(kv_format, kHeadDim), part = kKvPageTokens * row_bytes;
    std::vector<unsigned char> kept(kPages * 2 * part), row(row_bytes);
    const unsigned char* pages[kPages];
    for (int page = 0; page < kPages; ++page) {
      unsigned char* const at = kept.data() + page * 2 * part;
      pages[page] = at;
      for (int slot = 0; slot < kKvPageTokens; ++slot) {
        const int first = (page * kKvPageTokens + slot) * kHeadDim;
        StoreKvRow(kv_format, &x[first], kHeadDim, row.data());
        PlaceKvKey(kv_format, row.data(), kHeadDim, kKvPageTokens, slot, at);
        StoreKvRow(kv_format, &other[first], kHeadDim, at + part + slot * row_bytes);
      }
    }
    std::vector<float> scores(kTokens), output(kHeadDim);
    kScalarKernels.attention[format]({.query = other.data(),
                                      .output = output.data(),
                                      .token_stride = kHeadDim,
                                      .heads = 1,
                                      .first_row = 0,
                                      .rows = 1,
                                      .pages = pages,
                                      .keys = 0,
                                      .values = part,
                                      .page_tokens = kKvPageTokens,
                                      .length = kTokens,
                                      .head_dim = kHeadDim,
                                      .scale = 0.1f,
                                      .scores = scores.data(),
                                      .score_stride = kTokens});
    Print("attention", output);
  }
}

}  // namespace
}  // namespace moed

int main() {
  moed::Inputs inputs;
  moed::PrintProducts(inputs);
  moed::PrintOthers(inputs);
}
