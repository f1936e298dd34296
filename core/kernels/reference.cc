// The scalar definition of every operation: what it computes, in which order, with which roundings. See backend.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/kernel_table.h"
#include "core/kernels/math.h"
#include "core/kernels/products.h"
#include "core/quant/block_layouts.h"
#include "core/quant/fp8.h"
#include "core/quant/half.h"

namespace moed {
namespace {

constexpr int kLanes = 8;

float LaneSum(const float (&s)[kLanes]) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

float Dot(const float* a, const float* b, int n) {
  float partial[kLanes] = {};
  for (int i = 0; i < n; ++i) partial[i % kLanes] = std::fma(a[i], b[i], partial[i % kLanes]);
  return LaneSum(partial);
}

template <class T>
T Load(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// The weights of a panel in a float format.
template <class Element, float (*kWiden)(Element)>
struct PlainFloats {
  static constexpr int kColumns = kBlockColumns;
  static constexpr int kPanelBlockBytes = sizeof(Element) * kPanelRows * kBlockColumns;
  static float Weight(const unsigned char* panel, int k, int row) {
    return kWiden(Load<Element>(panel + sizeof(Element) * (kPanelRows * k + row)));
  }
};
struct ScaledE4m3 {
  static constexpr int kColumns = quant::kFp8BlockColumns;
  static constexpr int kPanelBlockBytes = quant::kFp8PanelBlockBytes;
  static float Weight(const unsigned char* panel, int k, int row) {
    const float scale = Load<float>(panel + quant::Fp8Header(k) + sizeof(float) * row);
    return quant::E4m3ToFloat(panel[quant::Fp8Codes(k) + row]) * scale;
  }
};

// A row of a panel times a token, for each format: its row in the table of products. Float rows: element k into partial k mod 8,
// over the padded width, as vectors do.
template <class Floats>
struct FloatFormat : Floats {
  static float Row(const MatMulArguments& a, const unsigned char* panel, int row, int token) {
    const int width = a.blocks * kBlockColumns;
    const float* x = a.values + static_cast<int64_t>(token) * width;
    float partial[kLanes] = {};
    for (int k = 0; k < width; ++k) {
      partial[k % kLanes] = std::fma(Floats::Weight(panel, k, row), x[k], partial[k % kLanes]);
    }
    return LaneSum(partial);
  }
};

float Same(float weight) { return weight; }

// Integer sums of parts, one after the other.
template <class Layout>
struct BlockFormat {
  static constexpr int kColumns = Layout::kColumns;
  static constexpr int kPanelBlockBytes = Layout::kBytes;
  static float Row(const MatMulArguments& a, const unsigned char* panel, int row, int token) {
    constexpr int kPart = Layout::kPartColumns;
    const int64_t first = static_cast<int64_t>(token) * a.blocks;
    const int8_t* x = a.codes + first * kBlockColumns;
    float sum = 0;
    quant::RowBlock block;
    for (int column = 0; column < a.blocks * kBlockColumns; column += Layout::kColumns, panel += Layout::kBytes) {
      Layout::Get(reinterpret_cast<const std::byte*>(panel), row, block);
      for (int part = 0; part < Layout::kColumns / kPart; ++part) {
        int32_t dot = 0, x_sum = 0;
        for (int k = kPart * part; k < kPart * (part + 1); ++k) {
          dot += Layout::Level(block, k) * x[column + k];
          x_sum += x[column + k];
        }
        const float x_scale = a.scales[first + (column + kPart * part) / kBlockColumns];
        sum = std::fma(static_cast<float>(dot), Layout::Scale(block, part) * x_scale, sum);
        if constexpr (Layout::kHasOffsets) sum = std::fma(static_cast<float>(x_sum), Layout::Offset(block, part) * x_scale, sum);
      }
    }
    return sum;
  }
};

// The rows of the formats.
template <FormatId kFormat>
struct ScalarFormat : BlockFormat<quant::BlockLayout<kFormat>> {};
template <>
struct ScalarFormat<FormatId::kF32> : FloatFormat<PlainFloats<float, Same>> {};
template <>
struct ScalarFormat<FormatId::kF16> : FloatFormat<PlainFloats<uint16_t, Float16ToFloat>> {};
template <>
struct ScalarFormat<FormatId::kBF16> : FloatFormat<PlainFloats<uint16_t, BFloat16ToFloat>> {};
template <>
struct ScalarFormat<FormatId::kFp8> : FloatFormat<ScaledE4m3> {};

struct Scalar {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = ScalarFormat<kFormat>;
    const int64_t blocks = a.blocks * kBlockColumns / Format::kColumns;
    for (int token = 0; token < a.tokens; ++token) {
      for (int row = begin * kPanelRows; row < end * kPanelRows && row < a.rows; ++row) {
        const unsigned char* panel = a.weights + row / kPanelRows * blocks * Format::kPanelBlockBytes;
        a.output[token * a.output_stride + row] = Format::Row(a, panel, row % kPanelRows, token);
      }
    }
  }
};

// Magnitudes compare as integers, which puts NaN above infinity; a block with either has a NaN scale, so that it shows.
void QuantizeBlock(const float* x, int8_t* codes, float* scale, int32_t* sum) {
  uint32_t largest_bits = 0;
  for (int i = 0; i < kBlockColumns; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  const float largest = std::bit_cast<float>(largest_bits);
  const bool finite = largest_bits < 0x7f800000u;
  const bool zero = !finite || largest < kSmallestActivation;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  *scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
  *sum = 0;
  for (int i = 0; i < kBlockColumns; ++i) {
    codes[i] = zero ? int8_t{0} : static_cast<int8_t>((x[i] * inverse + kRoundFloat) - kRoundFloat);
    *sum += codes[i];
  }
}

void Prepare(const PrepareArguments& a) { PrepareBlocks(a, QuantizeBlock); }

void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y) {
  const float scale = 1.0f / std::sqrt(Dot(x, x, cols) / static_cast<float>(cols) + eps);
  for (int i = 0; i < cols; ++i) y[i] = weight == nullptr ? x[i] * scale : x[i] * scale * weight[i];
}

void Rope(const RopeArguments& a) {
  const int half = a.head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const auto [sin, cos] = SineCosine(a.position * a.inv_freq[i]);
    for (int head = 0; head < a.heads; ++head) {
      float* pair = a.x + static_cast<int64_t>(head) * a.head_dim + i;
      const float first = pair[0];
      const float second = pair[half];
      pair[0] = first * cos - second * sin;
      pair[half] = second * cos + first * sin;
    }
  }
}

constexpr float kNoSink = -std::numeric_limits<float>::infinity();

// x becomes exp(x - the largest of x and the sink) from `first` on; returns their sum, the sink's own added last.
float Exponentials(float* x, int first, int n, float sink) {
  float largest = sink;
  for (int i = first; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  float partial[kLanes] = {};
  for (int i = first; i < n; ++i) {
    x[i] = Exp(x[i] - largest);
    partial[i % kLanes] += x[i];
  }
  return sink == kNoSink ? LaneSum(partial) : LaneSum(partial) + Exp(sink - largest);
}

void Softmax(float* x, int n) {
  const float sum = Exponentials(x, 0, n, kNoSink);
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

struct Columns {
  int begin, end;
};

// Columns of the values' rows, weighted by the exponentials of the positions [first, length).
template <KvFormat kFormat>
void SumValues(const AttentionArguments& a, int64_t row_bytes, int first, int length, Columns columns, const float* exponentials,
               float total, float* output) {
  float numbers[kMostHeadDim], sum[kMostHeadDim];
  for (int t = first; t < length; ++t) {
    WidenKvRow(kFormat, a.pages[t / a.page_tokens] + a.values + t % a.page_tokens * row_bytes, a.head_dim, numbers);
    const bool begins = t == first || t % kAttentionSumTokens == 0;
    const bool ends = (t + 1) % kAttentionSumTokens == 0 || t + 1 == length;
    for (int d = columns.begin; d < columns.end; ++d) {
      sum[d] = std::fma(exponentials[t], numbers[d], begins ? 0.0f : sum[d]);
      if (ends) output[d] = t / kAttentionSumTokens == first / kAttentionSumTokens ? sum[d] : output[d] + sum[d];
    }
  }
  for (int d = columns.begin; d < columns.end; ++d) output[d] /= total;
}

template <KvFormat kFormat>
void AttentionOfRow(const AttentionArguments& a, int row, float* scores) {
  const int64_t at = row / a.heads * a.token_stride + int64_t{row} % a.heads * a.head_dim;
  const int token = row / a.heads, length = a.length + (a.grows ? token : 0);
  const int first = std::max(a.first, a.window > 0 && a.window < length ? length - a.window : 0);
  const float* const query = a.query + at;
  unsigned char stored[kMostHeadDim * sizeof(float)];
  float numbers[kMostHeadDim];
  for (int t = first; t < length; ++t) {
    TakeKvKey(kFormat, a.pages[t / a.page_tokens] + a.keys, a.head_dim, a.page_tokens, t % a.page_tokens, stored);
    WidenKvRow(kFormat, stored, a.head_dim, numbers);
    float score = 0;
    for (int d = 0; d < a.head_dim; ++d) score = std::fma(query[d], numbers[d], score);
    scores[t] = a.scale * score;
    if (a.bias == nullptr) continue;
    const int behind = std::clamp(t - (a.position + token), -a.bias_reach, a.bias_reach);
    scores[t] += a.bias[int64_t{row} % a.heads * (2 * a.bias_reach + 1) + a.bias_reach + behind];
  }
  const float total = Exponentials(scores, first, length, a.sinks == nullptr ? kNoSink : a.sinks[row % a.heads]);
  SumValues<kFormat>(a, KvRowBytes(kFormat, a.head_dim), first, length, {0, a.head_dim}, scores, total, a.output + at);
}

template <KvFormat kFormat>
void Attention(const AttentionArguments& a) {
  for (int i = 0; i < a.rows; ++i) AttentionOfRow<kFormat>(a, a.first_row + i, a.scores + i * a.score_stride);
}

template <KvFormat kFormat>
void ScoreLatents(const LatentArguments& arguments, int row, float* scores) {
  const AttentionArguments& a = arguments.latents;
  const int64_t latent_bytes = KvRowBytes(kFormat, a.head_dim);
  const int64_t row_bytes = LatentRowBytes(kFormat, a.head_dim, arguments.rotary_dims);
  const float* const query = a.query + row / a.heads * a.token_stride + int64_t{row} % a.heads * a.head_dim;
  const float* const rotated = arguments.rotated + row * arguments.rotated_stride;
  float key[kMostHeadDim];
  for (int t = arguments.begin; t < std::min(arguments.end, a.length + row / a.heads); ++t) {
    const unsigned char* stored = a.pages[t / a.page_tokens] + t % a.page_tokens * row_bytes;
    WidenKvRow(kFormat, stored, a.head_dim, key);
    WidenKvRow(kFormat, stored + latent_bytes, arguments.rotary_dims, key + a.head_dim);
    float score = 0;
    for (int d = 0; d < a.head_dim; ++d) score = std::fma(query[d], key[d], score);
    for (int d = 0; d < arguments.rotary_dims; ++d) score = std::fma(rotated[d], key[a.head_dim + d], score);
    scores[t] = a.scale * score;
  }
}

template <KvFormat kFormat>
void AttendLatent(const LatentArguments& arguments) {
  const AttentionArguments& a = arguments.latents;
  const int64_t row_bytes = LatentRowBytes(kFormat, a.head_dim, arguments.rotary_dims);
  for (int i = 0; i < a.rows; ++i) {
    const int row = a.first_row + i, length = a.length + row / a.heads;
    const int64_t at = row / a.heads * a.token_stride + int64_t{row} % a.heads * a.head_dim;
    float* const scores = a.scores + i * a.score_stride;
    switch (arguments.stage) {
      case LatentStage::kScores:
        ScoreLatents<kFormat>(arguments, row, scores);
        break;
      case LatentStage::kWeights:
        if (i >= arguments.begin && i < arguments.end) arguments.totals[i] = Exponentials(scores, 0, length, kNoSink);
        break;
      case LatentStage::kSums:
        SumValues<kFormat>(a, row_bytes, 0, length, {arguments.begin, arguments.end}, scores, arguments.totals[i], a.output + at);
    }
  }
}

template <KvFormat kFormat>
void StoreRow(const float* numbers, int head_dim, void* row) {
  StoreKvRow(kFormat, numbers, head_dim, row);
}

// As DeltaRule, with a decay for each row of the state.
void DeltaRuleByChannel(const StateArguments& a) {
  for (int token = 0; token < a.tokens; ++token) {
    const float* query = a.query + token * a.row_stride;
    const float* key = a.key + token * a.row_stride;
    const float* decay = a.decay + token * a.decay_stride;
    for (int j = 0; j < a.columns; ++j) {
      float held = 0, sum = 0;
      for (int i = 0; i < a.key_dim; ++i) held = std::fma(a.state[i * a.state_stride + j], decay[i] * key[i], held);
      const float change = (a.value[token * a.row_stride + j] - held) * a.rate[token * a.gate_stride];
      for (int i = 0; i < a.key_dim; ++i) {
        float& state = a.state[i * a.state_stride + j];
        state = std::fma(key[i], change, decay[i] * state);
        sum = std::fma(state, query[i], sum);
      }
      a.output[token * a.output_stride + j] = a.scale * sum;
    }
  }
}

// The sums of a column end before its state changes: it is read and written in two passes.
void DeltaRule(const StateArguments& a) {
  if (a.decay_by_channel) return DeltaRuleByChannel(a);
  for (int token = 0; token < a.tokens; ++token) {
    const float* query = a.query + token * a.row_stride;
    const float* key = a.key + token * a.row_stride;
    const float* value = a.value + token * a.row_stride;
    const float decay = a.decay[token * a.decay_stride];
    for (int j = 0; j < a.columns; ++j) {
      float held = 0, sum = 0;
      for (int i = 0; i < a.key_dim; ++i) held = std::fma(a.state[i * a.state_stride + j], key[i], held);
      const float change = std::fma(-decay, held, value[j]) * a.rate[token * a.gate_stride];
      for (int i = 0; i < a.key_dim; ++i) {
        float& state = a.state[i * a.state_stride + j];
        state = std::fma(key[i], change, decay * state);
        sum = std::fma(state, query[i], sum);
      }
      a.output[token * a.output_stride + j] = a.scale * sum;
    }
  }
}

void StateSpace(const StateArguments& a) {
  for (int token = 0; token < a.tokens; ++token) {
    const float* query = a.query + token * a.row_stride;
    const float* key = a.key + token * a.row_stride;
    const float* value = a.value + token * a.row_stride;
    for (int j = 0; j < a.columns; ++j) {
      const float change = value[j] * a.rate[token * a.gate_stride];
      float sum = 0;
      for (int i = 0; i < a.key_dim; ++i) {
        float& state = a.state[i * a.state_stride + j];
        state = std::fma(key[i], change, a.decay[token * a.decay_stride] * state);
        sum = std::fma(state, query[i], sum);
      }
      a.output[token * a.output_stride + j] = std::fma(a.skip, value[j], sum);
    }
  }
}

void SigmoidGate(float* x, const float* gate, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= Sigmoid(gate[i]);
}

void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Silu(gate[i]) * up[i];
}

void ClampedSwiGlu(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = clamp.limit < gate[i] ? clamp.limit : gate[i];
    float u = clamp.limit < up[i] ? clamp.limit : up[i];
    u = -clamp.limit > u ? -clamp.limit : u;
    out[i] = (u + 1.0f) * (g / (1.0f + Exp(-(clamp.alpha * g))));
  }
}

void GeGlu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Gelu(gate[i]) * up[i];
}

void SquaredRelu(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float r = 0.0f > x[i] ? 0.0f : x[i];
    x[i] = r * r;
  }
}

void SoftCap(float* x, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * Tanh(x[i] / cap);
}

void AddScaled(float* y, const float* x, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(scale, x[i], y[i]);
}

void Add(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

const KernelTable kScalarKernels = {
    .mat_mul = kProducts<Scalar>,
    .prepare = Prepare,
    .rms_norm = RmsNorm,
    .rope = Rope,
    .attention = {Attention<KvFormat::kF32>, Attention<KvFormat::kF16>, Attention<KvFormat::kQ8>},
    .attend_latent = {AttendLatent<KvFormat::kF32>, AttendLatent<KvFormat::kF16>, AttendLatent<KvFormat::kQ8>},
    .store_kv_row = {StoreRow<KvFormat::kF32>, StoreRow<KvFormat::kF16>, StoreRow<KvFormat::kQ8>},
    .delta_rule = DeltaRule,
    .state_space = StateSpace,
    .sigmoid_gate = SigmoidGate,
    .swi_glu = SwiGlu,
    .clamped_swi_glu = ClampedSwiGlu,
    .ge_glu = GeGlu,
    .squared_relu = SquaredRelu,
    .soft_cap = SoftCap,
    .softmax = Softmax,
    .add_scaled = AddScaled,
    .add = Add,
};

}  // namespace moed
