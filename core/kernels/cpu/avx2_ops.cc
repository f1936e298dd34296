// Everything but the products and attention. Includes intrinsics and plain declarations only: nothing inline may leave this file
// with AVX2 in it.
#include <immintrin.h>

#include "core/kernels/constants.h"
#include "core/kernels/cpu/avx2.h"

namespace moed {
namespace avx2 {
namespace {

constexpr int kLanes = 8;

// The first `count` lanes, count < 8: all bits set there.
inline __m256i FirstLanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline __m256i Magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

// ((s0+s4)+(s2+s6))+((s1+s5)+(s3+s7))
inline float LaneSum(__m256 s) {
  const __m128 fours = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  const __m128 twos = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
  return _mm_cvtss_f32(_mm_add_ss(twos, _mm_shuffle_ps(twos, twos, 1)));
}

// Eight floats, or the last few of an array: those beyond its end are neither read nor written.
struct Full {
  __m256 Load(const float* at) const { return _mm256_loadu_ps(at); }
  void Store(float* at, __m256 x) const { _mm256_storeu_ps(at, x); }
  __m256 Keep(__m256, __m256 updated) const { return updated; }
};
struct Tail {
  explicit Tail(int64_t lanes) : mask(FirstLanes(lanes)) {}
  __m256i mask;
  __m256 Load(const float* at) const { return _mm256_maskload_ps(at, mask); }
  void Store(float* at, __m256 x) const { _mm256_maskstore_ps(at, mask, x); }
  // Lanes beyond the end stay as they are: adding even a zero would turn -0 into 0.
  __m256 Keep(__m256 old, __m256 updated) const { return _mm256_blendv_ps(old, updated, _mm256_castsi256_ps(mask)); }
};

// body(i, Full or Tail) for i = 0, 8, 16, ... below n.
template <class Body>
inline void ForEights(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, Tail{n - i});
}

inline float Dot(const float* a, const float* b, int64_t n) {
  __m256 sum = _mm256_setzero_ps();
  ForEights(n, [&](int64_t i, auto lanes) { sum = lanes.Keep(sum, _mm256_fmadd_ps(lanes.Load(a + i), lanes.Load(b + i), sum)); });
  return LaneSum(sum);
}

inline __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// As Exp in kernels/math.h, operation by operation.
inline __m256 Exp(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(kExpHighest), x);
  x = _mm256_max_ps(_mm256_set1_ps(kExpLowest), x);
  const __m256 round = _mm256_set1_ps(kRoundFloat);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2E), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExp[4]);
  for (int i = 3; i >= 0; --i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp[i]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  return _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(exponent, half)));
}

inline __m256 Negative(__m256 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }

inline __m256 Silu(__m256 x) { return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(Negative(x)))); }

// As Gelu in kernels/math.h.
inline __m256 Gelu(__m256 x) {
  const __m256 factor = _mm256_fmadd_ps(_mm256_set1_ps(kGelu[1]), _mm256_mul_ps(x, x), _mm256_set1_ps(kGelu[0]));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(Negative(_mm256_mul_ps(x, factor)))));
}

// As Tanh in kernels/math.h.
inline __m256 Tanh(__m256 x) {
  const __m256 square = _mm256_mul_ps(x, x), one = _mm256_set1_ps(1.0f), sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
  __m256 p = _mm256_set1_ps(kTanh[4]);
  for (int i = 3; i >= 0; --i) p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(kTanh[i]));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  const __m256 e = Exp(_mm256_add_ps(magnitude, magnitude));
  const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
  const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(kTanhBorder), _CMP_LT_OQ);
  return _mm256_blendv_ps(_mm256_or_ps(large, sign), _mm256_fmadd_ps(_mm256_mul_ps(p, square), x, x), is_small);
}

struct Quarters {
  __m128 sin;
  __m128 cos;
};

// As SineCosine in kernels/math.h, four angles at a time.
inline Quarters SineCosine4(__m128 angle) {
  const __m256d x = _mm256_cvtps_pd(angle);
  const __m256d round = _mm256_set1_pd(kRoundDouble);
  const __m256d shifted = _mm256_add_pd(_mm256_mul_pd(x, _mm256_set1_pd(kTwoOverPi)), round);
  const __m256d n = _mm256_sub_pd(shifted, round);
  __m256d r = x;
  for (int i = 0; i < 3; ++i) r = _mm256_sub_pd(r, _mm256_mul_pd(n, _mm256_set1_pd(kHalfPi[i])));
  const __m256d square = _mm256_mul_pd(r, r);
  __m256d s = _mm256_set1_pd(kSin[5]);
  for (int i = 4; i >= 0; --i) s = _mm256_add_pd(_mm256_mul_pd(s, square), _mm256_set1_pd(kSin[i]));
  s = _mm256_add_pd(_mm256_mul_pd(_mm256_mul_pd(s, square), r), r);
  __m256d c = _mm256_set1_pd(kCos[6]);
  for (int i = 5; i >= 0; --i) c = _mm256_add_pd(_mm256_mul_pd(c, square), _mm256_set1_pd(kCos[i]));
  c = _mm256_add_pd(_mm256_mul_pd(c, square), _mm256_set1_pd(1.0));

  const __m256i quadrant = _mm256_castpd_si256(shifted);
  const __m256i next = _mm256_add_epi64(quadrant, _mm256_set1_epi64x(1));
  const __m256d odd = _mm256_castsi256_pd(_mm256_slli_epi64(quadrant, 63));
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m256d sine_sign = _mm256_and_pd(_mm256_castsi256_pd(_mm256_slli_epi64(quadrant, 62)), sign);
  const __m256d cosine_sign = _mm256_and_pd(_mm256_castsi256_pd(_mm256_slli_epi64(next, 62)), sign);
  return {_mm256_cvtpd_ps(_mm256_xor_pd(_mm256_blendv_pd(s, c, odd), sine_sign)),
          _mm256_cvtpd_ps(_mm256_xor_pd(_mm256_blendv_pd(c, s, odd), cosine_sign))};
}

// Codes of 32 values to `codes`; returns their sum.
inline int32_t RoundCodes(const float* x, __m256 inverse, int8_t* codes) {
  __m256i rounded[4];
  for (int i = 0; i < 4; ++i) rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + kLanes * i), inverse));
  const __m256i total = _mm256_add_epi32(_mm256_add_epi32(rounded[0], rounded[1]), _mm256_add_epi32(rounded[2], rounded[3]));
  // Packing works within 128-bit halves; the permutation puts the groups of four back in order.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]), _mm256_packs_epi32(rounded[2], rounded[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_permutevar8x32_epi32(bytes, order));
  const __m128i fours = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  const __m128i twos = _mm_add_epi32(fours, _mm_shuffle_epi32(fours, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(twos, _mm_shuffle_epi32(twos, 0xb1)));
}

inline void QuantizeBlock(const float* x, int8_t* codes, float* scale, int32_t* sum) {
  __m256i largest_bits = Magnitude(_mm256_loadu_ps(x));
  for (int i = 1; i < 4; ++i) largest_bits = _mm256_max_epi32(largest_bits, Magnitude(_mm256_loadu_ps(x + kLanes * i)));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest_bits), _mm256_extracti128_si256(largest_bits, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  const bool finite = _mm_cvtsi128_si32(four) < 0x7f800000;
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(four));
  if (!finite || largest < kSmallestActivation) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_setzero_si256());
    *scale = finite ? 0.0f : __builtin_nanf("");
    *sum = 0;
    return;
  }
  *scale = largest / 127.0f;
  *sum = RoundCodes(x, _mm256_set1_ps(127.0f / largest), codes);
}

// NaN is passed over, as `x > largest` does.
inline float Largest(const float* x, int64_t n) {
  __m256 largest = _mm256_set1_ps(-__builtin_inff());
  ForEights(n, [&](int64_t i, auto lanes) { largest = lanes.Keep(largest, _mm256_max_ps(lanes.Load(x + i), largest)); });
  const __m128 fours = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  const __m128 twos = _mm_max_ps(fours, _mm_movehl_ps(fours, fours));
  return _mm_cvtss_f32(_mm_max_ss(twos, _mm_shuffle_ps(twos, twos, 1)));
}

}  // namespace

void Prepare(const PrepareArguments& a) { PrepareBlocks(a, QuantizeBlock); }

void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y) {
  const float mean = Dot(x, x, cols) / static_cast<float>(cols) + eps;
  const __m256 scale = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
  if (weight == nullptr) {
    return ForEights(cols, [&](int64_t i, auto lanes) { lanes.Store(y + i, _mm256_mul_ps(lanes.Load(x + i), scale)); });
  }
  ForEights(cols, [&](int64_t i, auto lanes) {
    lanes.Store(y + i, _mm256_mul_ps(_mm256_mul_ps(lanes.Load(x + i), scale), lanes.Load(weight + i)));
  });
}

void Rope(const RopeArguments& a) {
  const int half = a.head_dim / 2;
  ForEights(half, [&](int64_t i, auto lanes) {
    const __m256 angle = _mm256_mul_ps(_mm256_set1_ps(a.position), lanes.Load(a.inv_freq + i));
    const Quarters low = SineCosine4(_mm256_castps256_ps128(angle));
    const Quarters high = SineCosine4(_mm256_extractf128_ps(angle, 1));
    const __m256 sin = _mm256_set_m128(high.sin, low.sin);
    const __m256 cos = _mm256_set_m128(high.cos, low.cos);
    float* pair = a.x + i;
    for (int head = 0; head < a.heads; ++head, pair += a.head_dim) {
      const __m256 first = lanes.Load(pair);
      const __m256 second = lanes.Load(pair + half);
      lanes.Store(pair, _mm256_sub_ps(_mm256_mul_ps(first, cos), _mm256_mul_ps(second, sin)));
      lanes.Store(pair + half, _mm256_add_ps(_mm256_mul_ps(second, cos), _mm256_mul_ps(first, sin)));
    }
  });
}

void Softmax(float* x, int n) {
  const __m256 largest = _mm256_set1_ps(Largest(x, n));
  __m256 partial = _mm256_setzero_ps();
  ForEights(n, [&](int64_t i, auto lanes) {
    const __m256 e = Exp(_mm256_sub_ps(lanes.Load(x + i), largest));
    lanes.Store(x + i, e);
    partial = lanes.Keep(partial, _mm256_add_ps(partial, e));
  });
  const __m256 sum = _mm256_set1_ps(LaneSum(partial));
  ForEights(n, [&](int64_t i, auto lanes) { lanes.Store(x + i, _mm256_div_ps(lanes.Load(x + i), sum)); });
}

void SigmoidGate(float* x, const float* gate, int64_t n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  ForEights(n, [&](int64_t i, auto lanes) {
    const __m256 sigmoid = _mm256_div_ps(one, _mm256_add_ps(one, Exp(Negative(lanes.Load(gate + i)))));
    lanes.Store(x + i, _mm256_mul_ps(lanes.Load(x + i), sigmoid));
  });
}

void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  ForEights(n,
            [&](int64_t i, auto lanes) { lanes.Store(out + i, _mm256_mul_ps(Silu(lanes.Load(gate + i)), lanes.Load(up + i))); });
}

// Minima and maxima with the bound first: NaN stays.
void ClampedSwiGlu(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out) {
  const __m256 alpha = _mm256_set1_ps(clamp.alpha), limit = _mm256_set1_ps(clamp.limit), least = Negative(limit);
  const __m256 one = _mm256_set1_ps(1.0f);
  ForEights(n, [&](int64_t i, auto lanes) {
    const __m256 g = _mm256_min_ps(limit, lanes.Load(gate + i));
    const __m256 u = _mm256_max_ps(least, _mm256_min_ps(limit, lanes.Load(up + i)));
    const __m256 activated = _mm256_div_ps(g, _mm256_add_ps(one, Exp(Negative(_mm256_mul_ps(alpha, g)))));
    lanes.Store(out + i, _mm256_mul_ps(_mm256_add_ps(u, one), activated));
  });
}

void GeGlu(const float* gate, const float* up, int64_t n, float* out) {
  ForEights(n,
            [&](int64_t i, auto lanes) { lanes.Store(out + i, _mm256_mul_ps(Gelu(lanes.Load(gate + i)), lanes.Load(up + i))); });
}

// The bound first: NaN stays.
void SquaredRelu(float* x, int64_t n) {
  ForEights(n, [&](int64_t i, auto lanes) {
    const __m256 positive = _mm256_max_ps(_mm256_setzero_ps(), lanes.Load(x + i));
    lanes.Store(x + i, _mm256_mul_ps(positive, positive));
  });
}

void SoftCap(float* x, float cap, int64_t n) {
  const __m256 most = _mm256_set1_ps(cap);
  ForEights(
      n, [&](int64_t i, auto lanes) { lanes.Store(x + i, _mm256_mul_ps(most, Tanh(_mm256_div_ps(lanes.Load(x + i), most)))); });
}

void AddScaled(float* y, const float* x, float scale, int64_t n) {
  const __m256 factor = _mm256_set1_ps(scale);
  ForEights(n, [&](int64_t i, auto lanes) { lanes.Store(y + i, _mm256_fmadd_ps(factor, lanes.Load(x + i), lanes.Load(y + i))); });
}

void Add(float* y, const float* x, int64_t n) {
  ForEights(n, [&](int64_t i, auto lanes) { lanes.Store(y + i, _mm256_add_ps(lanes.Load(y + i), lanes.Load(x + i))); });
}

}  // namespace avx2

}  // namespace moed
