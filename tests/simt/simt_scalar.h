/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's scalar functions for a host compiler: bit casts, conversions that state their rounding,
   arithmetic that may not be contracted, bit counting, 4-way byte products. */
#ifndef PARE_SIMT_SCALAR_H
#define PARE_SIMT_SCALAR_H

template <class To, class From> static inline To simt_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

SIMT_INLINE float __int_as_float(int v) { return simt_bits<float>(v); }
SIMT_INLINE float __uint_as_float(unsigned v) { return simt_bits<float>(v); }
SIMT_INLINE int __float_as_int(float v) { return simt_bits<int>(v); }
SIMT_INLINE unsigned __float_as_uint(float v) { return simt_bits<unsigned>(v); }
SIMT_INLINE double __longlong_as_double(long long v) { return simt_bits<double>(v); }
SIMT_INLINE long long __double_as_longlong(double v) { return simt_bits<long long>(v); }

/* Saturating, NaN becomes 0: PTX cvt. */
SIMT_INLINE int simt_to_int(float v)
{
    if (v != v) return 0;
    if (v >= 2147483648.0f) return INT32_MAX;
    return v < -2147483648.0f ? INT32_MIN : static_cast<int>(v);
}
SIMT_INLINE int __float2int_rn(float v) { return simt_to_int(nearbyintf(v)); }
SIMT_INLINE int __float2int_rz(float v) { return simt_to_int(truncf(v)); }
SIMT_INLINE int __float2int_rd(float v) { return simt_to_int(floorf(v)); }
SIMT_INLINE int __float2int_ru(float v) { return simt_to_int(ceilf(v)); }
SIMT_INLINE float __int2float_rn(int v) { return static_cast<float>(v); }
SIMT_INLINE float __uint2float_rn(unsigned v) { return static_cast<float>(v); }
SIMT_INLINE float __double2float_rn(double v) { return static_cast<float>(v); }

/* Each rounds once; the sources are compiled without contraction. */
SIMT_INLINE float __fadd_rn(float a, float b) { return a + b; }
SIMT_INLINE float __fsub_rn(float a, float b) { return a - b; }
SIMT_INLINE float __fmul_rn(float a, float b) { return a * b; }
SIMT_INLINE float __fdiv_rn(float a, float b) { return a / b; }
SIMT_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMT_INLINE float __fsqrt_rn(float a) { return sqrtf(a); }
SIMT_INLINE double __dadd_rn(double a, double b) { return a + b; }
SIMT_INLINE double __dmul_rn(double a, double b) { return a * b; }
SIMT_INLINE double __ddiv_rn(double a, double b) { return a / b; }
SIMT_INLINE float rsqrtf(float a) { return 1.0f / sqrtf(a); }
SIMT_INLINE float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

SIMT_INLINE int __popc(unsigned v) { return __builtin_popcount(v); }
SIMT_INLINE int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
SIMT_INLINE int __clz(int v) { return v ? __builtin_clz(static_cast<unsigned>(v)) : 32; }
SIMT_INLINE int __clzll(long long v)
{
    return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64;
}
SIMT_INLINE int __ffs(unsigned v) { return __builtin_ffs(static_cast<int>(v)); }
SIMT_INLINE unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1u) << (31 - i);
    return r;
}
SIMT_INLINE int __mulhi(int a, int b)
{
    return static_cast<int>((static_cast<long long>(a) * b) >> 32);
}
SIMT_INLINE unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
/* Byte i of the result is the byte of {b, a} that nibble i of the selector names. */
SIMT_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    unsigned r = 0;
    for (unsigned i = 0; i < 4; i++)
        r |= static_cast<unsigned>(both >> (selector >> 4 * i & 7u) * 8 & 0xff) << 8 * i;
    return r;
}
SIMT_INLINE unsigned simt_saturate_u8x4(const int v[4])
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= static_cast<unsigned>(v[i] < 0 ? 0 : v[i] > 255 ? 255 : v[i]) << 8 * i;
    return r;
}
/* Half a unit of the tenth bit carries; Inf stays, NaN is a NaN. */
SIMT_INLINE unsigned simt_to_tf32(float v)
{
    const unsigned bits = __float_as_uint(v);
    return v != v ? 0x7fffe000u : (bits + 0x1000u) & ~0x1fffu;
}
SIMT_INLINE unsigned simt_permute_bytes(unsigned a, unsigned b, unsigned selector)
{
    unsigned r = __byte_perm(a, b, selector);
    for (unsigned i = 0; i < 4; i++)
        if (selector >> (4 * i + 3) & 1u) {
            const unsigned byte = 0xffu << 8 * i;
            r = r >> (8 * i + 7) & 1u ? r | byte : r & ~byte;
        }
    return r;
}
SIMT_INLINE unsigned simt_xor_or(unsigned a, unsigned b, unsigned where)
{
    return ((a ^ b) & where) | ((a | b) & ~where);
}
SIMT_INLINE int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 4; i++)
        sum += static_cast<unsigned>(static_cast<int8_t>(a >> 8 * i) *
                                     static_cast<int8_t>(b >> 8 * i));
    return static_cast<int>(sum);
}

template <class T> static inline T __ldg(const T *p) { return *p; }

#define SIMT_MIN_MAX(T)                                                                            \
    SIMT_INLINE T min(T a, T b) { return b < a ? b : a; }                                          \
    SIMT_INLINE T max(T a, T b) { return a < b ? b : a; }
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
#undef SIMT_MIN_MAX

/* PTX ISA, min and max, which treat quiet and signalling NaNs alike: of a number and a NaN the
   number; -0 is less than +0. The C library's may do neither. */
template <class T> static inline T simt_lesser(T a, T b)
{
    if (a != a || b != b) return b == b ? b : a == a ? a : a + b;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T> static inline T simt_greater(T a, T b)
{
    if (a != a || b != b) return b == b ? b : a == a ? a : a + b;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
SIMT_INLINE float min(float a, float b) { return simt_lesser(a, b); }
SIMT_INLINE float max(float a, float b) { return simt_greater(a, b); }
SIMT_INLINE double min(double a, double b) { return simt_lesser(a, b); }
SIMT_INLINE double max(double a, double b) { return simt_greater(a, b); }
#define fminf(a, b) simt_lesser<float>(a, b)
#define fmaxf(a, b) simt_greater<float>(a, b)

#endif
