// Four floats in a NEON vector, for attention.h. Internal linkage, see there.
#pragma once

#include <arm_neon.h>
#include <stdint.h>

namespace moed {
namespace {

struct LanesNeon {
  using Floats = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kSums = 24;

  static inline Floats Load(const float* at) { return vld1q_f32(at); }
  static inline Floats Load(const uint16_t* at) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at))); }
  static inline Floats Load(const int8_t* at) {
    uint32_t four;
    __builtin_memcpy(&four, at, sizeof(four));
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
  }
  static inline Floats BroadcastHalf(uint16_t half) { return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))); }
  static inline Floats Broadcast(float x) { return vdupq_n_f32(x); }
  static inline Floats Zero() { return vdupq_n_f32(0); }
  static inline void Store(float* at, Floats x) { vst1q_f32(at, x); }
  static inline void StoreHalves(uint16_t* at, Floats x) { vst1_u16(at, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

  static inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static inline Floats Multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
  static inline Floats Add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static inline Floats Subtract(Floats a, Floats b) { return vsubq_f32(a, b); }
  static inline Floats Divide(Floats a, Floats b) { return vdivq_f32(a, b); }
  // The second where either is NaN.
  static inline Floats Least(Floats a, Floats b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static inline Floats Largest(Floats a, Floats b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  // NaN becomes the one quiet NaN of its sign.
  static inline Floats PlainNan(Floats x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t plain = vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x80000000u)), vdupq_n_u32(0x7fc00000u));
    return vreinterpretq_f32_u32(vbslq_u32(vceqq_f32(x, x), bits, plain));
  }

  // p * 2^n, |n| <= 151 a whole number, rounded once; `shifted` = n + kRoundFloat.
  static inline Floats Scale(Floats p, Floats, Floats shifted, Floats round) {
    const int32x4_t exponent = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(round));
    const int32x4_t half = vshrq_n_s32(exponent, 1);
    return vmulq_f32(vmulq_f32(p, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(exponent, half)));
  }

  // Eight partial sums of numbers that come sixteen at a time, number i into partial i mod 8.
  struct Partials {
    Floats low = vdupq_n_f32(0), high = vdupq_n_f32(0);
    inline void Add(const Floats (&x)[4]) {
      low = vaddq_f32(vaddq_f32(low, x[0]), x[2]);
      high = vaddq_f32(vaddq_f32(high, x[1]), x[3]);
    }
    inline void Store(float* eight) const {
      vst1q_f32(eight, low);
      vst1q_f32(eight + 4, high);
    }
  };

 private:
  static inline Floats PowerOfTwo(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
};

}  // namespace
}  // namespace moed
