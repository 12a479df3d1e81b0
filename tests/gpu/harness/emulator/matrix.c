/* ldmatrix and mma.sync: which lane holds which element is in PTX ISA 8.7, section 9.7.14 ("Matrix Fragments for
 * mma.m16n8k16", ".m16n8k8", ".m8n8k4", and "ldmatrix").
 */
#include "emu.h"

#include <string.h>

static Thread *lane_of(uint32_t warp, uint32_t lane) { return &threads[warp * WARP + lane]; }

static void resolve_ldmatrix(uint32_t warp, uint32_t mask) {
    (void)mask;
    Thread *asking = self;
    uint32_t detail = self->detail, count = detail & 7, transposed = detail >> 3;
    for (uint32_t matrix = 0; matrix < count; matrix++) {
        uint16_t rows[8][8];
        for (uint32_t row = 0; row < 8; row++) {
            self = lane_of(warp, matrix * 8 + row);
            const void *address = *(const void *const *)self->in;
            emu_access(address, 16, 16, READ, self->site);
            memcpy(rows[row], address, 16);
        }
        for (uint32_t lane = 0; lane < WARP; lane++) {
            uint32_t group = lane / 4, pair = lane % 4 * 2;
            uint16_t *out = (uint16_t *)lane_of(warp, lane)->out + matrix * 2;
            out[0] = transposed ? rows[pair][group] : rows[group][pair];
            out[1] = transposed ? rows[pair + 1][group] : rows[group][pair + 1];
        }
    }
    self = asking;
}

#define LDMATRIX(count, suffix, transposed)                                                                     \
    void emu_ldmatrix_sync_aligned_m8n8_x##count##suffix##_b16_p3(uint32_t site, const void *in, void *out) {   \
        warp_collective(site, 0xFFFFFFFF, 1, count | transposed << 3, in, out, resolve_ldmatrix);               \
    }
LDMATRIX(2, , 0)
LDMATRIX(4, , 0)
LDMATRIX(2, _trans, 1)
LDMATRIX(4, _trans, 1)

/* One result is no struct: it comes back as a value. */
static uint32_t load_one(uint32_t site, const void *address, uint32_t transposed) {
    uint32_t out = 0;
    warp_collective(site, 0xFFFFFFFF, 1, 1 | transposed << 3, &address, &out, resolve_ldmatrix);
    return out;
}
uint32_t emu_ldmatrix_sync_aligned_m8n8_x1_b16_p3(uint32_t site, const void *address) { return load_one(site, address, 0); }
uint32_t emu_ldmatrix_sync_aligned_m8n8_x1_trans_b16_p3(uint32_t site, const void *address) { return load_one(site, address, 1); }

static float of_half(uint16_t bits) { _Float16 value; memcpy(&value, &bits, 2); return (float)value; }
static uint16_t half_of(float value) { _Float16 half = (_Float16)value; uint16_t bits; memcpy(&bits, &half, 2); return bits; }
static float of_bits(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }

enum { F16, BF16, TF32, F16_F16 };

static float element(const void *registers, uint32_t index, uint32_t kind) {
    if (kind == TF32) return of_bits(((const uint32_t *)registers)[index] & 0xFFFFE000);
    uint16_t bits = ((const uint16_t *)registers)[index];
    return kind == BF16 ? of_bits((uint32_t)bits << 16) : of_half(bits);
}

/* D = A B + C of 16 x 8 x depth: products and sums in f64, rounded once to the type of D. */
static void resolve_mma(uint32_t warp, uint32_t mask) {
    (void)mask;
    uint32_t kind = self->detail & 7, depth = self->detail >> 3, narrow = kind == F16_F16, half = depth / 2;
    uint32_t per_register = kind == TF32 ? 1 : 2, count = depth / 2;
    static float a[16][16], b[16][8];
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const uint8_t *in = lane_of(warp, lane)->in;
        uint32_t group = lane / 4, within = lane % 4 * per_register;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t reg = i / per_register, part = i % per_register;
            a[group + reg % 2 * 8][within + part + reg / 2 * half] = element(in, i, kind);
        }
        for (uint32_t i = 0; i < count / 2; i++) {
            uint32_t reg = i / per_register, part = i % per_register;
            b[within + part + reg * half][group] = element(in + 16, i, kind);
        }
    }
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const uint8_t *c = (const uint8_t *)lane_of(warp, lane)->in + 24;
        uint8_t *d = lane_of(warp, lane)->out;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = narrow ? of_half(((const uint16_t *)c)[i]) : ((const float *)c)[i];
            for (uint32_t k = 0; k < depth; k++) sum += (double)a[row][k] * b[k][column];
            if (narrow) ((uint16_t *)d)[i] = half_of((float)sum);
            else ((float *)d)[i] = (float)sum;
        }
    }
}

#define MMA(name, kind, depth)                                                                            \
    void emu_mma_##name(uint32_t site, const void *in, void *out) {                                       \
        warp_collective(site, 0xFFFFFFFF, 1, kind | depth << 3, in, out, resolve_mma);                    \
    }
MMA(m16n8k16_row_col_f32_f32, F16, 16)
MMA(m16n8k16_row_col_f16_f16, F16_F16, 16)
MMA(m16n8k16_row_col_bf16, BF16, 16)
MMA(m16n8k8_row_col_tf32, TF32, 8)

typedef struct { double a, b, c[2]; } Quarter;

static void resolve_mma_f64(uint32_t warp, uint32_t mask) {
    (void)mask;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const Quarter *own = lane_of(warp, lane)->in;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t row = lane / 4, column = lane % 4 * 2 + i;
            double sum = own->c[i];
            for (uint32_t k = 0; k < 4; k++) {
                const Quarter *left = lane_of(warp, row * 4 + k)->in, *right = lane_of(warp, column * 4 + k)->in;
                sum = __builtin_fma(left->a, right->b, sum);
            }
            ((double *)lane_of(warp, lane)->out)[i] = sum;
        }
    }
}
void emu_mma_m8n8k4_row_col_f64(uint32_t site, const void *in, void *out) {
    warp_collective(site, 0xFFFFFFFF, 1, 0, in, out, resolve_mma_f64);
}
