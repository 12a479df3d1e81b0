/* What this machine can do at most, and three kernels written by hand. Compiled with -O3 -march=native -fopenmp
 * -fno-math-errno. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Chains of multiply-adds: as many as hide the latency of two units, and as there are registers for. */
#if defined(__AVX512F__)
#define LANES 16
#define CHAINS 24
#else
#define LANES 8
#define CHAINS 12
#endif
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

/* Independent chains of multiply-adds. Gives the operations done. */
double fma_peak(int64_t rounds) {
    double sum = 0, operations = 0;
#pragma omp parallel reduction(+ : sum, operations)
    {
        vec c[CHAINS], a = {0}, b = {0};
        a += 0.999f, b += 0.001f;
        for (int i = 0; i < CHAINS; i++) c[i] = b * (float)i;
        for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
            for (int i = 0; i < CHAINS; i++) c[i] = c[i] * a + b;
        }
        for (int i = 0; i < CHAINS; i++) sum += c[i][0];
        operations += 2.0 * LANES * CHAINS * rounds;
    }
    return sum == 1e30 ? 0 : operations;
}

/* The sum of n floats, read in order. */
float read_sum(const float *from, int64_t n) {
    vec sums[8] = {{0}};
    int64_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES)
        for (int k = 0; k < 8; k++) sums[k] += *(const vec *)(from + i + k * LANES);
    float sum = 0;
    for (int k = 0; k < 8; k++)
        for (int lane = 0; lane < LANES; lane++) sum += sums[k][lane];
    for (; i < n; i++) sum += from[i];
    return sum;
}

static inline void copy_part(float *to, const float *from, int64_t n, int32_t past) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v = *(const vec *)(from + i);
#if defined(__AVX512F__)
        if (past) {
            __builtin_ia32_movntps512(to + i, (float __attribute__((vector_size(64))))v);
            continue;
        }
#endif
        *(vec *)(to + i) = v;
    }
    for (; i < n; i++) to[i] = from[i];
}

/* Copies of n floats, again and again: through the caches, or with stores past them where `past` is set. */
void copy(float *to, const float *from, int64_t n, int32_t past, int64_t repeats) {
    if (n <= 32768) {
        for (int64_t repeat = 0; repeat < repeats; repeat++) {
            copy_part(to, from, n, past);
            __asm__ volatile("" ::: "memory");
        }
        return;
    }
#pragma omp parallel
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
#pragma omp for schedule(static)
        for (int64_t at = 0; at < n; at += 4096)
            copy_part(to + at, from + at, n - at < 4096 ? n - at : 4096, past);
    }
}

static inline vec clamped(vec x, float low, float high) {
    vec lows = (vec){0} + low, highs = (vec){0} + high;
    ivec below = x < lows, above = x > highs;
    return (vec)((below & (ivec)lows) | (above & (ivec)highs) | (~(below | above) & (ivec)x));
}

static inline vec exp_of(vec x) {
    x = clamped(x, -87.33f, 88.37f);
    vec magic = (vec){0} + 12582912.0f, n = x * 1.44269504f + magic - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = (vec){0} + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    ivec scale = (__builtin_convertvector(n, ivec) + 127) << 23;
    return p * (vec)scale;
}

/* exp(a + b); n is a multiple of the vector. */
void exp_add(float *out, const float *a, const float *b, int64_t n) {
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; i += LANES)
        *(vec *)(out + i) = exp_of(*(const vec *)(a + i) + *(const vec *)(b + i));
}

static inline void put(float *to, vec v, int32_t past) {
#if defined(__AVX512F__)
    if (past) {
        __builtin_ia32_movntps512(to, (float __attribute__((vector_size(64))))v);
        return;
    }
#endif
    *(vec *)to = v;
}

/* The tenth step of Adam, its results past the caches where `past` is set; n is a multiple of the vector. */
void adam(float *po, float *mo, float *vo, const float *p, const float *g, const float *m, const float *v, int64_t n,
          int32_t past) {
    const float first = 1 / (1 - powf(0.9f, 10)), second = 1 / (1 - powf(0.999f, 10));
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; i += LANES) {
        vec gs = *(const vec *)(g + i), root;
        vec ms = *(const vec *)(m + i) * 0.9f + gs * 0.1f;
        vec vs = *(const vec *)(v + i) * 0.999f + gs * 0.001f * gs;
        vec x = vs * second;
        for (int k = 0; k < LANES; k++) root[k] = __builtin_sqrtf(x[k]);
        put(po + i, *(const vec *)(p + i) - 1e-3f * (ms * first / (root + 1e-8f)), past);
        put(mo + i, ms, past);
        put(vo + i, vs, past);
    }
}

/* Root mean square norm of rows; columns are a multiple of four vectors. */
void rms_norm(float *out, const float *x, const float *w, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * columns;
        vec sums[4] = {{0}};
        for (int64_t i = 0; i < columns; i += 4 * LANES)
            for (int k = 0; k < 4; k++) {
                vec v = *(const vec *)(in + i + k * LANES);
                sums[k] += v * v;
            }
        vec all = sums[0] + sums[1] + (sums[2] + sums[3]);
        float sum = 0;
        for (int k = 0; k < LANES; k++) sum += all[k];
        float scale = 1.0f / sqrtf(sum / columns + 1e-5f);
        for (int64_t i = 0; i < columns; i += LANES)
            *(vec *)(out + r * columns + i) = *(const vec *)(in + i) * scale * *(const vec *)(w + i);
    }
}
