/* Formulas, comparisons and launches of kcache manifests, for clients in C: one file, no allocation, no library.
 *
 * docs/reference/gpu-abi.md has the grammar. Every value on the way is a signed 64-bit integer; a formula that leaves that
 * range has no value. Texts come with their length, so that they need no terminating zero. GCC and Clang. */
#ifndef KCACHE_FORMULA_H
#define KCACHE_FORMULA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KCACHE_OK = 0,
    KCACHE_BAD_TEXT = -1,       /* not in the grammar, or longer or deeper than anybody writes */
    KCACHE_UNKNOWN_SYMBOL = -2,
    KCACHE_DIVIDES_BY_ZERO = -3,
    KCACHE_OVERFLOW = -4,       /* these sizes are too large */
    KCACHE_NEGATIVE = -5,       /* a grid, shared memory or offset below 0 */
    KCACHE_TOO_LARGE = -6       /* more blocks than a GPU takes */
};

typedef struct {
    const char *const *names; /* of the symbols; values[i] belongs to names[i] */
    const int64_t *values;
    size_t count;
} kcache_symbols;

typedef struct {
    const char *at, *end;
    const kcache_symbols *symbols; /* NULL: read the text only */
    int error;
} kcache_reader;

/* -- characters ------------------------------------------------------------------------------------------- */

static void kcache_skip(kcache_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || (*r->at >= '\t' && *r->at <= '\r'))) r->at++;
}

static int kcache_is_digit(char c) { return c >= '0' && c <= '9'; }

static int kcache_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static char kcache_peek(kcache_reader *r) {
    kcache_skip(r);
    return r->at < r->end ? *r->at : '\0';
}

static int kcache_take(kcache_reader *r, char wanted) {
    if (r->at >= r->end || kcache_peek(r) != wanted || r->at >= r->end) return 0;
    r->at++;
    return 1;
}

static int64_t kcache_fail(kcache_reader *r, int error) {
    if (r->error == KCACHE_OK) r->error = error;
    return 0;
}

/* -- values ----------------------------------------------------------------------------------------------- */

static int64_t kcache_within(kcache_reader *r, __int128 value) {
    if (value < INT64_MIN || value > INT64_MAX) return kcache_fail(r, KCACHE_OVERFLOW);
    return (int64_t)value;
}

/* Rounds down, as `%` and `ceildiv` below rest on. The divisor is not 0. */
static __int128 kcache_floordiv(__int128 a, __int128 b) {
    __int128 quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t kcache_apply(kcache_reader *r, char function, int64_t a, int64_t b) {
    if (r->error != KCACHE_OK || r->symbols == NULL) return 0;
    if ((function == '%' || function == 'c' || function == 'r') && b == 0)
        return kcache_fail(r, KCACHE_DIVIDES_BY_ZERO);
    __int128 x = a, y = b;
    switch (function) {
        case '+': return kcache_within(r, x + y);
        case '-': return kcache_within(r, x - y);
        case '*': return kcache_within(r, x * y);
        case '%': return kcache_within(r, x - kcache_floordiv(x, y) * y);
        case 'c': return kcache_within(r, -kcache_floordiv(-x, y));
        case 'r': return kcache_within(r, -kcache_floordiv(-x, y) * y);
        case '<': return a < b ? a : b;
        default: return a > b ? a : b;
    }
}

/* -- grammar ---------------------------------------------------------------------------------------------- */

static int64_t kcache_sum(kcache_reader *r, int depth);

static int64_t kcache_integer(kcache_reader *r) {
    __int128 value = 0;
    for (; r->at < r->end && kcache_is_digit(*r->at); r->at++)
        if (value <= INT64_MAX) value = value * 10 + (*r->at - '0');
    return value > INT64_MAX ? kcache_fail(r, KCACHE_BAD_TEXT) : (int64_t)value;
}

static int64_t kcache_call(kcache_reader *r, char function, int depth) {
    if (!kcache_take(r, '(')) return kcache_fail(r, KCACHE_BAD_TEXT);
    int64_t a = kcache_sum(r, depth);
    if (!kcache_take(r, ',')) return kcache_fail(r, KCACHE_BAD_TEXT);
    int64_t b = kcache_sum(r, depth);
    if (!kcache_take(r, ')')) return kcache_fail(r, KCACHE_BAD_TEXT);
    return kcache_apply(r, function, a, b);
}

static int64_t kcache_name(kcache_reader *r, int depth) {
    static const struct { const char *name; char function; } functions[] = {
        {"ceildiv", 'c'}, {"roundup", 'r'}, {"min", '<'}, {"max", '>'}};
    const char *start = r->at;
    while (r->at < r->end && (kcache_is_letter(*r->at) || kcache_is_digit(*r->at))) r->at++;
    size_t length = (size_t)(r->at - start);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, start, length) == 0)
            return kcache_call(r, functions[i].function, depth + 1);
    if (r->symbols == NULL) return 0;
    for (size_t i = 0; i < r->symbols->count; i++)
        if (strlen(r->symbols->names[i]) == length && memcmp(r->symbols->names[i], start, length) == 0)
            return r->symbols->values[i];
    return kcache_fail(r, KCACHE_UNKNOWN_SYMBOL);
}

static int64_t kcache_atom(kcache_reader *r, int depth) {
    if (depth > 100 || r->error != KCACHE_OK) return kcache_fail(r, KCACHE_BAD_TEXT);
    char next = kcache_peek(r);
    if (kcache_take(r, '-')) return kcache_apply(r, '-', 0, kcache_atom(r, depth + 1));
    if (kcache_take(r, '(')) {
        int64_t value = kcache_sum(r, depth + 1);
        return kcache_take(r, ')') ? value : kcache_fail(r, KCACHE_BAD_TEXT);
    }
    if (kcache_is_digit(next)) return kcache_integer(r);
    if (kcache_is_letter(next)) return kcache_name(r, depth);
    return kcache_fail(r, KCACHE_BAD_TEXT);
}

static int64_t kcache_product(kcache_reader *r, int depth) {
    int64_t value = kcache_atom(r, depth);
    for (;;) {
        char sign = kcache_peek(r);
        if (r->error != KCACHE_OK || (sign != '*' && sign != '%')) return value;
        r->at++;
        value = kcache_apply(r, sign, value, kcache_atom(r, depth));
    }
}

static int64_t kcache_sum(kcache_reader *r, int depth) {
    int64_t value = kcache_product(r, depth);
    for (;;) {
        char sign = kcache_peek(r);
        if (r->error != KCACHE_OK || (sign != '+' && sign != '-')) return value;
        r->at++;
        value = kcache_apply(r, sign, value, kcache_product(r, depth));
    }
}

static int kcache_read(const char *text, size_t length, const kcache_symbols *symbols, int64_t *value) {
    kcache_reader r = {text, text + length, symbols, KCACHE_OK};
    if (length > 4096) return KCACHE_BAD_TEXT;
    *value = kcache_sum(&r, 0);
    kcache_skip(&r);
    if (r.error == KCACHE_OK && r.at != r.end) return KCACHE_BAD_TEXT;
    return r.error;
}

/* The value of a formula at these sizes, or an error. The text is read as a whole before anything is computed. */
static int kcache_formula(const char *text, size_t length, const kcache_symbols *symbols, int64_t *value) {
    int error = kcache_read(text, length, NULL, value);
    return error == KCACHE_OK ? kcache_read(text, length, symbols, value) : error;
}

/* 1 where a comparison holds (the empty one always does), 0 where not, or an error. */
static int kcache_holds(const char *text, size_t length, const kcache_symbols *symbols) {
    size_t left = 0, sign = 0;
    int64_t a, b;
    if (length == 0) return 1;
    while (left < length && strchr("=!<>", text[left] ? text[left] : ' ') == NULL) left++;
    while (left + sign < length && sign < 2 && strchr("=!<>", text[left + sign] ? text[left + sign] : ' ')) sign++;
    char first = left < length ? text[left] : '\0';
    if (sign == 0 || (sign == 2 && text[left + 1] != '=') || (sign == 1 && (first == '=' || first == '!')))
        return KCACHE_BAD_TEXT;
    const char *right = text + left + sign;
    size_t rest = length - left - sign;
    int error = kcache_read(text, left, NULL, &a);
    if (error == KCACHE_OK) error = kcache_read(right, rest, NULL, &b);
    if (error == KCACHE_OK) error = kcache_read(text, left, symbols, &a);
    if (error == KCACHE_OK) error = kcache_read(right, rest, symbols, &b);
    if (error != KCACHE_OK) return error;
    switch (first) {
        case '=': return a == b;
        case '!': return a != b;
        case '<': return sign == 2 ? a <= b : a < b;
        default: return sign == 2 ? a >= b : a > b;
    }
}

/* -- launches --------------------------------------------------------------------------------------------- */

typedef struct {
    const char *when;
    const char *grid[3];
    const char *shared_bytes;
} kcache_launch;

typedef struct {
    uint32_t grid[3];
    int64_t shared_bytes;
} kcache_call_sizes;

/* 1: launch with these sizes; 0: leave it out; below 0: an error. */
static int kcache_launch_sizes(const kcache_launch *launch, const kcache_symbols *symbols, kcache_call_sizes *out) {
    static const int64_t most[3] = {INT32_MAX, 65535, 65535};
    int64_t grid[3];
    int runs = kcache_holds(launch->when, strlen(launch->when), symbols);
    if (runs != 1) return runs;
    for (int axis = 0; axis < 3; axis++) {
        int error = kcache_formula(launch->grid[axis], strlen(launch->grid[axis]), symbols, &grid[axis]);
        if (error != KCACHE_OK) return error;
        if (grid[axis] < 0) return KCACHE_NEGATIVE;
    }
    int error = kcache_formula(launch->shared_bytes, strlen(launch->shared_bytes), symbols, &out->shared_bytes);
    if (error != KCACHE_OK) return error;
    if (out->shared_bytes < 0) return KCACHE_NEGATIVE;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return 0;
    for (int axis = 0; axis < 3; axis++) {
        if (grid[axis] > most[axis]) return KCACHE_TOO_LARGE;
        out->grid[axis] = (uint32_t)grid[axis];
    }
    return out->shared_bytes > 1 << 20 ? KCACHE_TOO_LARGE : 1;
}

/* A parameter's text: 'b' (pointer of buffer `value`), 'w' (workspace plus `value` bytes), 'i' (the number `value`),
 * or an error. */
static int kcache_param(const char *text, size_t length, const kcache_symbols *symbols, int64_t *value) {
    static const struct { const char *prefix; char kind; } kinds[] = {{"workspace:", 'w'}, {"i64:", 'i'}};
    if (length > 7 && memcmp(text, "buffer:", 7) == 0) {
        int leading_zero = text[7] == '0' && length > 8;
        if (length > 16 || leading_zero) return KCACHE_BAD_TEXT;
        *value = 0;
        for (size_t i = 7; i < length; i++) {
            if (!kcache_is_digit(text[i])) return KCACHE_BAD_TEXT;
            *value = *value * 10 + (text[i] - '0');
        }
        return 'b';
    }
    for (size_t i = 0; i < 2; i++) {
        size_t prefix = strlen(kinds[i].prefix);
        if (length <= prefix || memcmp(text, kinds[i].prefix, prefix) != 0) continue;
        int error = kcache_formula(text + prefix, length - prefix, symbols, value);
        if (error != KCACHE_OK) return error;
        return kinds[i].kind == 'w' && *value < 0 ? KCACHE_NEGATIVE : kinds[i].kind;
    }
    return KCACHE_BAD_TEXT;
}

#endif
