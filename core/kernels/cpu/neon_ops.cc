// Everything but the products and attention. Where a reduction has eight partial sums they are two vectors: elements i mod 8 < 4
// and the rest.
#include <arm_neon.h>

#include "core/kernels/constants.h"
#include "core/kernels/cpu/neon.h"

namespace moed::neon {
namespace {

constexpr int kLanes = 4;
constexpr int kBlockColumns = 32;
constexpr int kBlockVectors = kBlockColumns / kLanes;

// Four floats, or the last few of an array: those beyond its end are neither read nor written.
struct Full {
  float32x4_t Load(const float* at) const { return vld1q_f32(at); }
  void Store(float* at, float32x4_t x) const { vst1q_f32(at, x); }
  float32x4_t Keep(float32x4_t, float32x4_t updated) const { return updated; }
};
struct Tail {
  int count;  // 1, 2 or 3
  float32x4_t Load(const float* at) const {
    float32x4_t x = vld1q_dup_f32(at);
    if (count > 1) x = vld1q_lane_f32(at + 1, x, 1);
    if (count > 2) x = vld1q_lane_f32(at + 2, x, 2);
    return x;
  }
  void Store(float* at, float32x4_t x) const {
    vst1q_lane_f32(at, x, 0);
    if (count > 1) vst1q_lane_f32(at + 1, x, 1);
    if (count > 2) vst1q_lane_f32(at + 2, x, 2);
  }
  // Lanes beyond the end stay as they are: adding even a zero would turn -0 into 0.
  float32x4_t Keep(float32x4_t old, float32x4_t updated) const {
    constexpr uint32_t kLane[] = {0, 1, 2, 3};
    return vbslq_f32(vcltq_u32(vld1q_u32(kLane), vdupq_n_u32(count)), updated, old);
  }
};

// body(i, half, Full or Tail) for i = 0, 4, 8, ... below n; half = i / 4 mod 2.
template <class Body>
inline void ForFours(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    body(i, 0, Full{});
    body(i + kLanes, 1, Full{});
  }
  const int rest = static_cast<int>(n - i);
  if (rest < kLanes) {
    if (rest > 0) body(i, 0, Tail{rest});
    return;
  }
  body(i, 0, Full{});
  if (rest > kLanes) body(i + kLanes, 1, Tail{rest - kLanes});
}

// ((s0+s4)+(s2+s6))+((s1+s5)+(s3+s7))
inline float LaneSum(float32x4_t low, float32x4_t high) {
  const float32x4_t fours = vaddq_f32(low, high);
  return vpadds_f32(vadd_f32(vget_low_f32(fours), vget_high_f32(fours)));
}

inline float Dot(const float* a, const float* b, int64_t n) {
  float32x4_t sum[2] = {};
  ForFours(n, [&](int64_t i, int half, auto lanes) {
    sum[half] = lanes.Keep(sum[half], vfmaq_f32(sum[half], lanes.Load(a + i), lanes.Load(b + i)));
  });
  return LaneSum(sum[0], sum[1]);
}

inline float32x4_t PowerOfTwo(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }

// As Exp in kernels/math.h, operation by operation.
inline float32x4_t Exp(float32x4_t x) {
  x = vminq_f32(vdupq_n_f32(kExpHighest), x);
  x = vmaxq_f32(vdupq_n_f32(kExpLowest), x);
  const float32x4_t round = vdupq_n_f32(kRoundFloat);
  const float32x4_t shifted = vfmaq_f32(round, x, vdupq_n_f32(kLog2E));
  const float32x4_t n = vsubq_f32(shifted, round);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-kLn2High));
  r = vfmaq_f32(r, n, vdupq_n_f32(-kLn2Low));
  float32x4_t p = vdupq_n_f32(kExp[4]);
  for (int i = 3; i >= 0; --i) p = vfmaq_f32(vdupq_n_f32(kExp[i]), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  const int32x4_t exponent = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(round));
  const int32x4_t half = vshrq_n_s32(exponent, 1);
  return vmulq_f32(vmulq_f32(p, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(exponent, half)));
}

inline float32x4_t Silu(float32x4_t x) { return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), Exp(vnegq_f32(x)))); }

// As Gelu in kernels/math.h.
inline float32x4_t Gelu(float32x4_t x) {
  const float32x4_t factor = vfmaq_f32(vdupq_n_f32(kGelu[0]), vdupq_n_f32(kGelu[1]), vmulq_f32(x, x));
  return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), Exp(vnegq_f32(vmulq_f32(x, factor)))));
}

// As Tanh in kernels/math.h.
inline float32x4_t Tanh(float32x4_t x) {
  const float32x4_t square = vmulq_f32(x, x), one = vdupq_n_f32(1.0f), magnitude = vabsq_f32(x);
  float32x4_t p = vdupq_n_f32(kTanh[4]);
  for (int i = 3; i >= 0; --i) p = vfmaq_f32(vdupq_n_f32(kTanh[i]), p, square);
  const float32x4_t e = Exp(vaddq_f32(magnitude, magnitude));
  const float32x4_t large = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, one)));
  const float32x4_t signed_large = vbslq_f32(vdupq_n_u32(uint32_t{1} << 31), x, large);
  return vbslq_f32(vcltq_f32(magnitude, vdupq_n_f32(kTanhBorder)), vfmaq_f32(x, vmulq_f32(p, square), x), signed_large);
}

struct Pair {
  float32x2_t sin;
  float32x2_t cos;
};

inline float64x2_t Negate(float64x2_t x, uint64x2_t if_set) {
  const uint64x2_t sign = vandq_u64(if_set, vdupq_n_u64(uint64_t{1} << 63));
  return vreinterpretq_f64_u64(veorq_u64(vreinterpretq_u64_f64(x), sign));
}

// As SineCosine in kernels/math.h, two angles at a time.
inline Pair SineCosine2(float32x2_t angle) {
  const float64x2_t x = vcvt_f64_f32(angle);
  const float64x2_t round = vdupq_n_f64(kRoundDouble);
  const float64x2_t shifted = vaddq_f64(vmulq_f64(x, vdupq_n_f64(kTwoOverPi)), round);
  const float64x2_t n = vsubq_f64(shifted, round);
  float64x2_t r = x;
  for (int i = 0; i < 3; ++i) r = vsubq_f64(r, vmulq_f64(n, vdupq_n_f64(kHalfPi[i])));
  const float64x2_t square = vmulq_f64(r, r);
  float64x2_t s = vdupq_n_f64(kSin[5]);
  for (int i = 4; i >= 0; --i) s = vaddq_f64(vmulq_f64(s, square), vdupq_n_f64(kSin[i]));
  s = vaddq_f64(vmulq_f64(vmulq_f64(s, square), r), r);
  float64x2_t c = vdupq_n_f64(kCos[6]);
  for (int i = 5; i >= 0; --i) c = vaddq_f64(vmulq_f64(c, square), vdupq_n_f64(kCos[i]));
  c = vaddq_f64(vmulq_f64(c, square), vdupq_n_f64(1.0));

  const uint64x2_t quadrant = vreinterpretq_u64_f64(shifted);
  const uint64x2_t next = vaddq_u64(quadrant, vdupq_n_u64(1));
  const uint64x2_t odd = vtstq_u64(quadrant, vdupq_n_u64(1));
  return {vcvt_f32_f64(Negate(vbslq_f64(odd, c, s), vshlq_n_u64(quadrant, 62))),
          vcvt_f32_f64(Negate(vbslq_f64(odd, s, c), vshlq_n_u64(next, 62)))};
}

inline uint32x4_t Magnitude(float32x4_t x) { return vreinterpretq_u32_f32(vabsq_f32(x)); }

inline void QuantizeBlock(const float* x, int8_t* codes, float* scale, int32_t* sum) {
  uint32x4_t largest_bits = Magnitude(vld1q_f32(x));
  for (int v = 1; v < kBlockVectors; ++v) largest_bits = vmaxq_u32(largest_bits, Magnitude(vld1q_f32(x + kLanes * v)));
  const uint32_t bits = vmaxvq_u32(largest_bits);
  const bool finite = bits < 0x7f800000u;
  const float largest = vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(bits)), 0);
  if (!finite || largest < kSmallestActivation) {
    for (int i = 0; i < kBlockColumns; i += 16) vst1q_s8(codes + i, vdupq_n_s8(0));
    *scale = finite ? 0.0f : __builtin_nanf("");
    *sum = 0;
    return;
  }
  *scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  int32x4_t rounded[kBlockVectors];  // to nearest even
  int32x4_t total = vdupq_n_s32(0);
  for (int v = 0; v < kBlockVectors; ++v) {
    rounded[v] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + kLanes * v), inverse));
    total = vaddq_s32(total, rounded[v]);
  }
  for (int v = 0; v < kBlockVectors; v += 4) {
    const int16x8_t low = vcombine_s16(vmovn_s32(rounded[v]), vmovn_s32(rounded[v + 1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(rounded[v + 2]), vmovn_s32(rounded[v + 3]));
    vst1q_s8(codes + kLanes * v, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  *sum = vaddvq_s32(total);
}

// NaN is passed over, as `x > largest` does.
inline float Largest(const float* x, int64_t n) {
  float32x4_t largest = vdupq_n_f32(-__builtin_inff());
  ForFours(n, [&](int64_t i, int, auto lanes) {
    const float32x4_t next = lanes.Load(x + i);
    largest = lanes.Keep(largest, vbslq_f32(vcgtq_f32(next, largest), next, largest));
  });
  return vmaxvq_f32(largest);
}

}  // namespace

void Prepare(const PrepareArguments& a) { PrepareBlocks(a, QuantizeBlock); }

void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y) {
  const float mean = Dot(x, x, cols) / static_cast<float>(cols) + eps;
  const float scale = 1.0f / vget_lane_f32(vsqrt_f32(vdup_n_f32(mean)), 0);
  if (weight == nullptr) {
    return ForFours(cols, [&](int64_t i, int, auto lanes) { lanes.Store(y + i, vmulq_n_f32(lanes.Load(x + i), scale)); });
  }
  ForFours(cols, [&](int64_t i, int, auto lanes) {
    lanes.Store(y + i, vmulq_f32(vmulq_n_f32(lanes.Load(x + i), scale), lanes.Load(weight + i)));
  });
}

void Rope(const RopeArguments& a) {
  const int half_dim = a.head_dim / 2;
  ForFours(half_dim, [&](int64_t i, int, auto lanes) {
    const float32x4_t angle = vmulq_n_f32(lanes.Load(a.inv_freq + i), a.position);
    const Pair low = SineCosine2(vget_low_f32(angle));
    const Pair high = SineCosine2(vget_high_f32(angle));
    const float32x4_t sin = vcombine_f32(low.sin, high.sin);
    const float32x4_t cos = vcombine_f32(low.cos, high.cos);
    float* pair = a.x + i;
    for (int head = 0; head < a.heads; ++head, pair += a.head_dim) {
      const float32x4_t first = lanes.Load(pair);
      const float32x4_t second = lanes.Load(pair + half_dim);
      lanes.Store(pair, vsubq_f32(vmulq_f32(first, cos), vmulq_f32(second, sin)));
      lanes.Store(pair + half_dim, vaddq_f32(vmulq_f32(second, cos), vmulq_f32(first, sin)));
    }
  });
}

void Softmax(float* x, int n) {
  const float32x4_t largest = vdupq_n_f32(Largest(x, n));
  float32x4_t partial[2] = {};
  ForFours(n, [&](int64_t i, int half, auto lanes) {
    const float32x4_t e = Exp(vsubq_f32(lanes.Load(x + i), largest));
    lanes.Store(x + i, e);
    partial[half] = lanes.Keep(partial[half], vaddq_f32(partial[half], e));
  });
  const float32x4_t sum = vdupq_n_f32(LaneSum(partial[0], partial[1]));
  ForFours(n, [&](int64_t i, int, auto lanes) { lanes.Store(x + i, vdivq_f32(lanes.Load(x + i), sum)); });
}

void SigmoidGate(float* x, const float* gate, int64_t n) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  ForFours(n, [&](int64_t i, int, auto lanes) {
    const float32x4_t sigmoid = vdivq_f32(one, vaddq_f32(one, Exp(vnegq_f32(lanes.Load(gate + i)))));
    lanes.Store(x + i, vmulq_f32(lanes.Load(x + i), sigmoid));
  });
}

void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  ForFours(n,
           [&](int64_t i, int, auto lanes) { lanes.Store(out + i, vmulq_f32(Silu(lanes.Load(gate + i)), lanes.Load(up + i))); });
}

void ClampedSwiGlu(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out) {
  const float32x4_t limit = vdupq_n_f32(clamp.limit), least = vdupq_n_f32(-clamp.limit), one = vdupq_n_f32(1.0f);
  ForFours(n, [&](int64_t i, int, auto lanes) {
    const float32x4_t g = vminq_f32(limit, lanes.Load(gate + i));
    const float32x4_t u = vmaxq_f32(least, vminq_f32(limit, lanes.Load(up + i)));
    const float32x4_t activated = vdivq_f32(g, vaddq_f32(one, Exp(vnegq_f32(vmulq_n_f32(g, clamp.alpha)))));
    lanes.Store(out + i, vmulq_f32(vaddq_f32(u, one), activated));
  });
}

void GeGlu(const float* gate, const float* up, int64_t n, float* out) {
  ForFours(n,
           [&](int64_t i, int, auto lanes) { lanes.Store(out + i, vmulq_f32(Gelu(lanes.Load(gate + i)), lanes.Load(up + i))); });
}

void SquaredRelu(float* x, int64_t n) {
  ForFours(n, [&](int64_t i, int, auto lanes) {
    const float32x4_t positive = vmaxq_f32(vdupq_n_f32(0.0f), lanes.Load(x + i));
    lanes.Store(x + i, vmulq_f32(positive, positive));
  });
}

void SoftCap(float* x, float cap, int64_t n) {
  const float32x4_t most = vdupq_n_f32(cap);
  ForFours(n, [&](int64_t i, int, auto lanes) { lanes.Store(x + i, vmulq_f32(most, Tanh(vdivq_f32(lanes.Load(x + i), most)))); });
}

void AddScaled(float* y, const float* x, float scale, int64_t n) {
  ForFours(n, [&](int64_t i, int, auto lanes) { lanes.Store(y + i, vfmaq_n_f32(lanes.Load(y + i), lanes.Load(x + i), scale)); });
}

void Add(float* y, const float* x, int64_t n) {
  ForFours(n, [&](int64_t i, int, auto lanes) { lanes.Store(y + i, vaddq_f32(lanes.Load(y + i), lanes.Load(x + i))); });
}

}  // namespace moed::neon
