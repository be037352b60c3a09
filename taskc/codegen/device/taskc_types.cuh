// Element types and conversions between them, the same meaning on both machines.
//
// cast<To>(x): float to int truncates toward zero, saturates at the ends of To, and NaN becomes 0 (what the GPU does for
// 32 bits, made the rule for all widths); int to int wraps; anything to b8 is x != 0 (so NaN is true); to a float type
// rounds once, to nearest even. Only 64-bit integers above 2^53 are rounded twice on the way to bf16.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Distinct structs and not typedefs of u16, so that overloads and templates can tell them apart.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b8 {
  u8 value;
  b8() = default;
  DEV b8(bool v) : value(v) {}
  DEV operator bool() const { return value != 0; }
};

template <class To, class From> DEV To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the size");
  To y;
  TASKC_COPY(&y, &x, sizeof(To));
  return y;
}

template <class T> struct IsFloat { enum : bool { value = false }; };
template <> struct IsFloat<float> { enum : bool { value = true }; };
template <> struct IsFloat<double> { enum : bool { value = true }; };

// ---- f16 and bf16 against float -------------------------------------------------------------------------------------

DEV float to_f32(bf16 x) { return bits_as<float>(u32(x.bits) << 16); }

#if TASKC_GPU
DEV float to_f32(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
DEV f16 round_f16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
DEV bf16 round_bf16(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
#else
#if defined(__F16C__)
typedef short taskc_v8i16 __attribute__((vector_size(16)));
typedef float taskc_v4f32 __attribute__((vector_size(16)));
DEV float to_f32(f16 x) {
  taskc_v8i16 v = {short(x.bits)};
  return __builtin_ia32_vcvtph2ps(v)[0];
}
DEV f16 round_f16(float x) {
  taskc_v4f32 v = {x};
  return f16{u16(__builtin_ia32_vcvtps2ph(v, 0)[0])};
}
#elif defined(__aarch64__)
DEV float to_f32(f16 x) { return float(bits_as<__fp16>(x.bits)); }
DEV f16 round_f16(float x) { return f16{bits_as<u16>(__fp16(x))}; }
#else
DEV float to_f32(f16 x) {
  u32 sign = u32(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return bits_as<float>(sign | 0x7f800000 | magnitude << 13);
  // The magnitude read as a float is 2^112 too small, subnormals included; the product is exact.
  return bits_as<float>(sign | bits_as<u32>(bits_as<float>(magnitude << 13) * 0x1p112f));
}
DEV f16 round_f16(float x) {
  u32 bits = bits_as<u32>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return f16{u16(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return f16{u16(sign | 0x7c00)};  // 65520 and above round to infinity
  // Below the least normal half, adding 0.5 makes the float unit round at the half's last place.
  if (magnitude < 0x38800000) return f16{u16(sign | (bits_as<u32>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000))};
  u32 even = magnitude >> 13 & 1;
  return f16{u16(sign | (magnitude - 0x38000000 + 0xfff + even) >> 13)};
}
#endif
DEV bf16 round_bf16(float x) {
  u32 bits = bits_as<u32>(x);
  if (x != x) return bf16{u16(0x7fff)};  // rounding could carry a NaN's payload into infinity
  return bf16{u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
#endif

// A double rounded to odd keeps what the second rounding needs to know, so double -> float -> half rounds as once.
DEV float round_to_odd(double x) {
  float y = float(x);
  if (double(y) == x || x != x) return y;
  u32 bits = bits_as<u32>(y);
  bool away = x < 0 ? double(y) < x : double(y) > x;
  return bits_as<float>((away ? bits - 1 : bits) | 1);
}

// ---- cast -----------------------------------------------------------------------------------------------------------

template <class T> DEV T widen(T x) { return x; }
DEV float widen(f16 x) { return to_f32(x); }
DEV float widen(bf16 x) { return to_f32(x); }
DEV int widen(b8 x) { return x.value != 0; }

template <class To, class F> DEV To saturate(F x) {
  constexpr bool has_sign = To(-1) < To(0);
  constexpr int bits = int(sizeof(To)) * 8 - has_sign;
  constexpr To high = To(~u64(0) >> (64 - bits));
  constexpr To low = has_sign ? To(-high - 1) : To(0);
  constexpr F limit = F(u64(1) << (bits - 1)) * F(2);  // 2^bits, exact where `high` itself is not
  if (x != x) return To(0);
  if (x >= limit) return high;
  if (x < F(low)) return low;
  return To(x);
}

template <class To> struct Narrow {
  template <class From> static DEV To from(From x) {
    if constexpr (IsFloat<From>::value && !IsFloat<To>::value) return saturate<To>(x);
    else return To(x);
  }
};
template <> struct Narrow<b8> {
  template <class From> static DEV b8 from(From x) { return b8(x != From(0)); }
};
template <> struct Narrow<f16> {
  // Through float: an integer that float does not hold exactly is far above the largest half.
  template <class From> static DEV f16 from(From x) { return round_f16(float(x)); }
  static DEV f16 from(double x) { return round_f16(round_to_odd(x)); }
};
template <> struct Narrow<bf16> {
  template <class From> static DEV bf16 from(From x) {
    if constexpr (sizeof(From) < 4) return round_bf16(float(x));
    else return round_bf16(round_to_odd(double(x)));
  }
  static DEV bf16 from(float x) { return round_bf16(x); }
};

template <class To, class From> DEV To cast(From x) { return Narrow<To>::from(widen(x)); }
template <class T> DEV T from_f32(float x) { return Narrow<T>::from(x); }
template <class T> DEV float to_f32(T x) { return Narrow<float>::from(widen(x)); }
