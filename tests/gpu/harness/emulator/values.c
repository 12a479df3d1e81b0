/* Special registers, and math that NVPTX has instructions for. Approximations are computed as well as f32 allows. */
#include "emu.h"

#include <math.h>
#include <string.h>

#define REGISTER(name, value) uint32_t emu_read_ptx_sreg_##name(uint32_t site) { (void)site; return value; }
REGISTER(tid_x, self->tid[0])
REGISTER(tid_y, self->tid[1])
REGISTER(tid_z, self->tid[2])
REGISTER(ntid_x, block_size[0])
REGISTER(ntid_y, block_size[1])
REGISTER(ntid_z, block_size[2])
REGISTER(ctaid_x, block_index[0])
REGISTER(ctaid_y, block_index[1])
REGISTER(ctaid_z, block_index[2])
REGISTER(nctaid_x, grid_size[0])
REGISTER(nctaid_y, grid_size[1])
REGISTER(nctaid_z, grid_size[2])
REGISTER(laneid, self->lane)
REGISTER(warpid, self->warp)
REGISTER(nwarpid, (thread_count + WARP - 1) / WARP)
REGISTER(warpsize, WARP)

void emu_membar_cta(uint32_t site) { (void)site; }
void emu_membar_gl(uint32_t site) { (void)site; }
void emu_membar_sys(uint32_t site) { (void)site; }

static float flushed(float value) { return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value; }

#define F32(name, value) float emu_##name(uint32_t site, float x) { (void)site; return value; }
F32(ex2_approx_f, exp2f(x))
F32(ex2_approx_f32, exp2f(x))
F32(ex2_approx_ftz_f, flushed(exp2f(flushed(x))))
F32(ex2_approx_ftz_f32, flushed(exp2f(flushed(x))))
F32(lg2_approx_f, log2f(x))
F32(lg2_approx_ftz_f, log2f(flushed(x)))
F32(rcp_rn_f, 1 / x)
F32(rcp_rn_ftz_f, flushed(1 / flushed(x)))
F32(rcp_approx_ftz_f, flushed(1 / flushed(x)))
F32(rsqrt_approx_f, 1 / sqrtf(x))
F32(rsqrt_approx_ftz_f, flushed(1 / sqrtf(flushed(x))))
F32(sqrt_f, sqrtf(x))
F32(sqrt_rn_f, sqrtf(x))
F32(sqrt_rn_ftz_f, flushed(sqrtf(flushed(x))))
F32(sqrt_approx_f, sqrtf(x))
F32(sqrt_approx_ftz_f, flushed(sqrtf(flushed(x))))
F32(sin_approx_f, sinf(x))
F32(sin_approx_ftz_f, sinf(flushed(x)))
F32(cos_approx_f, cosf(x))
F32(cos_approx_ftz_f, cosf(flushed(x)))
F32(tanh_approx_f32, tanhf(x))
F32(fabs_f32, fabsf(x))
double emu_sqrt_rn_d(uint32_t site, double x) { (void)site; return sqrt(x); }
double emu_rcp_rn_d(uint32_t site, double x) { (void)site; return 1 / x; }
double emu_rcp_approx_ftz_d(uint32_t site, double x) { (void)site; return 1 / x; }
float emu_div_approx_f(uint32_t site, float x, float y) { (void)site; return x / y; }
float emu_div_full(uint32_t site, float x, float y) { (void)site; return x / y; }
float emu_div_rn_f(uint32_t site, float x, float y) { (void)site; return x / y; }
float emu_fma_rn_f(uint32_t site, float x, float y, float z) { (void)site; return fmaf(x, y, z); }
double emu_fma_rn_d(uint32_t site, double x, double y, double z) { (void)site; return fma(x, y, z); }
float emu_fmax_f(uint32_t site, float x, float y) { (void)site; return fmaxf(x, y); }
float emu_fmin_f(uint32_t site, float x, float y) { (void)site; return fminf(x, y); }
double emu_fmax_d(uint32_t site, double x, double y) { (void)site; return fmax(x, y); }
double emu_fmin_d(uint32_t site, double x, double y) { (void)site; return fmin(x, y); }
float emu_fmax_nan_f(uint32_t site, float x, float y) { (void)site; return isnan(x) || isnan(y) ? NAN : fmaxf(x, y); }
float emu_fmin_nan_f(uint32_t site, float x, float y) { (void)site; return isnan(x) || isnan(y) ? NAN : fminf(x, y); }

/* tf32 keeps 10 bits of mantissa: to nearest, ties away. */
uint32_t emu_f2tf32_rna(uint32_t site, float x) {
    uint32_t bits;
    (void)site;
    memcpy(&bits, &x, 4);
    return isfinite(x) ? (bits + 0x1000) & 0xFFFFE000 : bits;
}

/* What LLVM calls for bf16 and f16 where the host has no instruction; libgcc 12 has none for bf16. */
static uint16_t bf16_of(double x) {
    float value = (float)x;
    uint32_t bits;
    /* Round to odd on the way from f64, so that rounding twice is rounding once. */
    memcpy(&bits, &value, 4);
    if (isfinite(x) && (double)value != x) {
        if (fabs((double)value) > fabs(x)) bits--;
        bits |= 1;
    }
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
_Float16 __truncdfbf2(double x) { uint16_t bits = bf16_of(x); _Float16 out; memcpy(&out, &bits, 2); return out; }
_Float16 __truncsfbf2(float x) { return __truncdfbf2((double)x); }

/* Two narrow floats of two f32, the second in the low half. */
typedef struct { float high, low; } Halves;
static uint16_t half_of(float value) { _Float16 half = (_Float16)value; uint16_t bits; memcpy(&bits, &half, 2); return bits; }
static uint16_t bfloat_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
void emu_ff2f16x2_rn(uint32_t site, const Halves *in, uint16_t *out) {
    (void)site;
    out[0] = half_of(in->low), out[1] = half_of(in->high);
}
void emu_ff2bf16x2_rn(uint32_t site, const Halves *in, uint16_t *out) {
    (void)site;
    out[0] = bfloat_of(in->low), out[1] = bfloat_of(in->high);
}
