"""The second evaluator of formulas, ``examples/kcache_formula.h``, as a library that tests call."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HEADER = Path(__file__).parents[3] / "examples" / "kcache_formula.h"
_SOURCE = """
#include "kcache_formula.h"
int formula(const char *t, size_t n, const char *const *names, const int64_t *values, size_t m,
            int64_t *out) {
    kcache_symbols s = {names, values, m};
    return kcache_formula(t, n, &s, out);
}
int holds(const char *t, size_t n, const char *const *names, const int64_t *values, size_t m) {
    kcache_symbols s = {names, values, m};
    return kcache_holds(t, n, &s);
}
int param(const char *t, size_t n, const char *const *names, const int64_t *values, size_t m, int64_t *out) {
    kcache_symbols s = {names, values, m};
    return kcache_param(t, n, &s, out);
}
int launch(const char *const *t, const char *const *names, const int64_t *values, size_t m, int64_t *out) {
    kcache_symbols s = {names, values, m};
    kcache_launch l = {t[0], {t[1], t[2], t[3]}, t[4]};
    kcache_call_sizes sizes;
    int runs = kcache_launch_sizes(&l, &s, &sizes);
    if (runs == 1) { for (int i = 0; i < 3; i++) out[i] = sizes.grid[i]; out[3] = sizes.shared_bytes; }
    return runs;
}
"""
BAD_TEXT, UNKNOWN_SYMBOL, DIVIDES_BY_ZERO, OVERFLOW, NEGATIVE, TOO_LARGE = range(-1, -7, -1)


@cache
def _library() -> Any:
    with TemporaryDirectory() as folder:
        source, library = Path(folder) / "formulas.c", Path(folder) / "formulas.so"
        source.write_text(_SOURCE)
        strict = [
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=undefined",
            "-fsanitize-undefined-trap-on-error",
        ]
        command = ["cc", "-O1", "-shared", "-fPIC", *strict, f"-I{HEADER.parent}", source, "-o", library]
        subprocess.run(command, check=True, timeout=240)
        return ctypes.CDLL(str(library))


def _symbols(symbols: Mapping[str, int]) -> tuple[Any, ...]:
    names = (ctypes.c_char_p * len(symbols))(*(name.encode() for name in symbols))
    return names, (ctypes.c_int64 * len(symbols))(*symbols.values()), ctypes.c_size_t(len(symbols))


def _text(text: str) -> tuple[Any, ...]:
    data = text.encode("utf-8", "surrogatepass")
    return data, ctypes.c_size_t(len(data))


def formula(text: str, symbols: Mapping[str, int]) -> tuple[int, int]:
    """Error code, value."""
    value = ctypes.c_int64()
    return _library().formula(*_text(text), *_symbols(symbols), ctypes.byref(value)), value.value


def holds(text: str, symbols: Mapping[str, int]) -> int:
    """1, 0 or an error code."""
    return int(_library().holds(*_text(text), *_symbols(symbols)))


def param(text: str, symbols: Mapping[str, int]) -> tuple[str, int]:
    """Kind ("" for an error), value or error code."""
    value = ctypes.c_int64()
    kind = _library().param(*_text(text), *_symbols(symbols), ctypes.byref(value))
    return (chr(kind), value.value) if kind > 0 else ("", kind)


def launch(
    when: str, grid: Sequence[str], shared: str, symbols: Mapping[str, int]
) -> tuple[int, tuple[int, ...]]:
    """1, 0 or an error code; grid and shared bytes."""
    texts = (ctypes.c_char_p * 5)(*(text.encode() for text in (when, *grid, shared)))
    out = (ctypes.c_int64 * 4)()
    return int(_library().launch(texts, *_symbols(symbols), out)), tuple(out)
