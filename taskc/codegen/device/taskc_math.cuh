// Scalar functions, named t_* on both machines and overloaded for float and double. IEEE meaning throughout: no fast
// forms, no flush to zero, NaN goes through minimum, maximum, relu and sign.
#pragma once

#if TASKC_GPU
#define TASKC_LIBM(name) ::name
DEV float inf_f32() { return bits_as<float>(0x7f800000u); }
DEV double inf_f64() { return bits_as<double>(0x7ff0000000000000ull); }
#else
#define TASKC_LIBM(name) __builtin_##name
DEV float inf_f32() { return __builtin_inff(); }
DEV double inf_f64() { return __builtin_inf(); }
#endif
DEV float nan_f32() { return bits_as<float>(0x7fc00000u); }
DEV double nan_f64() { return bits_as<double>(0x7ff8000000000000ull); }

#define TASKC_UNARY(name, function)                                   \
  DEV float t_##name(float x) { return TASKC_LIBM(function##f)(x); } \
  DEV double t_##name(double x) { return TASKC_LIBM(function)(x); }
TASKC_UNARY(exp, exp)
TASKC_UNARY(expm1, expm1)
TASKC_UNARY(log, log)
TASKC_UNARY(log1p, log1p)
TASKC_UNARY(sqrt, sqrt)
TASKC_UNARY(tanh, tanh)
TASKC_UNARY(erf, erf)
TASKC_UNARY(sin, sin)
TASKC_UNARY(cos, cos)
TASKC_UNARY(tan, tan)
TASKC_UNARY(asin, asin)
TASKC_UNARY(acos, acos)
TASKC_UNARY(atan, atan)
TASKC_UNARY(sinh, sinh)
TASKC_UNARY(cosh, cosh)
TASKC_UNARY(asinh, asinh)
TASKC_UNARY(acosh, acosh)
TASKC_UNARY(atanh, atanh)
TASKC_UNARY(floor, floor)
TASKC_UNARY(ceil, ceil)
TASKC_UNARY(trunc, trunc)
TASKC_UNARY(round, rint)  // half to even, as ONNX wants; C's round() goes away from zero
#undef TASKC_UNARY

#if TASKC_GPU
DEV float t_rsqrt(float x) { return ::rsqrtf(x); }
DEV double t_rsqrt(double x) { return ::rsqrt(x); }
#else
DEV float t_rsqrt(float x) { return 1.f / __builtin_sqrtf(x); }
DEV double t_rsqrt(double x) { return 1. / __builtin_sqrt(x); }
#endif

DEV float t_pow(float x, float y) { return TASKC_LIBM(powf)(x, y); }
DEV double t_pow(double x, double y) { return TASKC_LIBM(pow)(x, y); }
DEV float t_fmod(float x, float y) { return TASKC_LIBM(fmodf)(x, y); }
DEV double t_fmod(double x, double y) { return TASKC_LIBM(fmod)(x, y); }
DEV float t_fma(float x, float y, float z) { return TASKC_LIBM(fmaf)(x, y, z); }
DEV double t_fma(double x, double y, double z) { return TASKC_LIBM(fma)(x, y, z); }

// The remainder with the divisor's sign, as floormod for integers.
template <class T> DEV T t_mod(T x, T y) {
  T r = t_fmod(x, y);
  return r != T(0) && (r < T(0)) != (y < T(0)) ? r + y : r;
}

template <class T> DEV bool t_isnan(T x) { return x != x; }
DEV bool t_isinf(float x) { return (bits_as<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
DEV bool t_isinf(double x) { return (bits_as<u64>(x) & ~(1ull << 63)) == 0x7ff0000000000000ull; }

// One text for integers and floats: the comparison is false for NaN, and `a != a` picks a NaN on the left.
template <class T> DEV T t_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> DEV T t_min(T a, T b) { return a < b || a != a ? a : b; }
#if TASKC_GPU
template <> DEV float t_max<float>(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
template <> DEV float t_min<float>(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#endif
template <class T> DEV T t_relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> DEV T t_sign(T x) {
  if constexpr (T(-1) < T(0)) return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
  else return T(x != T(0));
}
template <class T> DEV T t_abs(T x) {
  if constexpr (T(-1) < T(0)) return x < T(0) ? T(0 - u64(x)) : x;  // through u64: the least integer stays itself
  else return x;
}
DEV float t_abs(float x) { return TASKC_LIBM(fabsf)(x); }
DEV double t_abs(double x) { return TASKC_LIBM(fabs)(x); }

// The exponential is of -|x|, so nothing overflows and small results keep their digits.
template <class T> DEV T t_sigmoid(T x) {
  T e = t_exp(-t_abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
// x * Phi(x), and its approximation by tanh. Above about 1e13 the cube overflows to infinity, whose tanh is 1.
template <class T> DEV T t_gelu(T x) { return T(0.5) * x * (T(1) + t_erf(x * T(0.70710678118654752440))); }
template <class T> DEV T t_gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + t_tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}
template <class T> DEV T t_softplus(T x) { return t_max(x, T(0)) + t_log1p(t_exp(-t_abs(x))); }

// ---- integers -------------------------------------------------------------------------------------------------------
// A divisor of zero is defined (the result is 0), because lanes whose load was predicated off divide by the zero that
// they got; the GPU computes something there, a CPU would trap. So is the least integer over -1 (it wraps).

template <class T> DEV T truncdiv(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(0)) if (b == T(-1)) return T(0 - u64(a));
  return T(a / b);
}
template <class T> DEV T truncmod(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (T(-1) < T(0)) if (b == T(-1)) return T(0);
  return T(a % b);
}
template <class T> DEV T floordiv(T a, T b) {
  T q = truncdiv(a, b), r = truncmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? T(q - 1) : q;
}
template <class T> DEV T floormod(T a, T b) {
  T r = truncmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? T(r + b) : r;
}

// Wraps on overflow. A negative exponent gives the reciprocal truncated: 1 and -1 keep a value, all else is 0.
template <class T> DEV T int_pow(T base, T exponent) {
  if (exponent < T(0)) {
    if (base == T(1)) return base;
    return base == T(-1) ? T(exponent % 2 == 0 ? 1 : -1) : T(0);
  }
  u64 result = 1, square = u64(base);
  for (u64 n = u64(exponent); n; n >>= 1, square *= square) if (n & 1) result *= square;
  return T(result);
}
DEV i32 t_pow(i32 x, i32 y) { return int_pow(x, y); }
DEV i64 t_pow(i64 x, i64 y) { return int_pow(x, y); }

// The upper half of a product, for division by a runtime constant through multiplication.
DEV u32 mulhi(u32 a, u32 b) { return u32(u64(a) * b >> 32); }
