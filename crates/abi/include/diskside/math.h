/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/math.h>: the part of C's math.h that functions can use. Each is one instruction, or a few. In C that
 * `diskside` compiles, <math.h> is this too; natively, this is <math.h>.
 */
#ifndef DISKSIDE_MATH_H
#define DISKSIDE_MATH_H

#ifndef __bpf__
#include <math.h>
#else
#include "../diskside.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_inf()
#define M_E 2.71828182845904523536
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880

#define isnan(x) ((x) != (x))
#define isinf(x) (__builtin_fabs(x) == __builtin_inf())
#define isfinite(x) (__builtin_fabs(x) < __builtin_inf())
#define signbit(x) (__builtin_copysign(1.0, x) < 0)

/* Of two operands of which one is NaN, fmin and fmax give the other. round goes half away from zero, rint and
   nearbyint half to even. */
DS_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
DS_INLINE double fabs(double x) { return __builtin_fabs(x); }
DS_INLINE double floor(double x) { return __builtin_floor(x); }
DS_INLINE double ceil(double x) { return __builtin_ceil(x); }
DS_INLINE double trunc(double x) { return __builtin_trunc(x); }
DS_INLINE double round(double x) { return __builtin_round(x); }
DS_INLINE double rint(double x) { return __builtin_rint(x); }
DS_INLINE double nearbyint(double x) { return __builtin_nearbyint(x); }
DS_INLINE double fmin(double x, double y) { return __builtin_fmin(x, y); }
DS_INLINE double fmax(double x, double y) { return __builtin_fmax(x, y); }
DS_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
DS_INLINE float sqrtf(float x) { return __builtin_sqrtf(x); }
DS_INLINE float fabsf(float x) { return __builtin_fabsf(x); }
DS_INLINE float floorf(float x) { return __builtin_floorf(x); }
DS_INLINE float ceilf(float x) { return __builtin_ceilf(x); }
DS_INLINE float truncf(float x) { return __builtin_truncf(x); }
DS_INLINE float roundf(float x) { return __builtin_roundf(x); }
DS_INLINE float rintf(float x) { return __builtin_rintf(x); }
DS_INLINE float nearbyintf(float x) { return __builtin_nearbyintf(x); }
DS_INLINE float fminf(float x, float y) { return __builtin_fminf(x, y); }
DS_INLINE float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
DS_INLINE float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
#endif

#endif
