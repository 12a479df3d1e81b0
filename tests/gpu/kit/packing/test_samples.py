"""Sampled results of the benchmark set, from seeds alone, are those of this CPU's kernels on whole arrays."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from benchmarks.gpu import cases
from benchmarks.gpu.kit.packing.programs import WHOLE, exact, near
from benchmarks.gpu.kit.packing.samples import _expected
from benchmarks.gpu.kit.runtime.values import compared, fill_of, narrowed, seeded, stored
from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel

CASES: dict[str, Callable[[], cases.Case]] = {
    "add_relu/bf16": lambda: cases._pointwise("bf16"),
    "add_relu/f32": lambda: cases._pointwise("f32"),
    "softmax": lambda: cases._softmax(1024),
    "rms_norm": lambda: cases._rms_norm(256),
    "layer_norm": lambda: cases._layer_norm(256),
    "sum": lambda: cases._sum("sum", (1 << 16,)),
    "column_sums": lambda: cases._sum("column_sums", (512, 128)),
    "matmul": lambda: cases._matmul(192),
    "attention": lambda: cases._attention(160, False, "bf16"),
    "attention/f32/causal": lambda: cases._attention(160, True, "f32"),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CASES)
def test_a_cpu_gives_what_is_expected_at_the_sampled_positions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "_ELEMENTS", 1 << 16)
    case = CASES[name]()
    expected = _expected(case)
    arrays = [seeded(case.dtype, shape, seed) for seed, shape in enumerate(case.shapes, 1)]
    options = CompileOptions()
    kernel = Kernel(lower_module(case.program, len(arrays), host_target().isa, options, lambda _: None))
    (got,) = kernel(*(array.view(NUMPY[case.dtype]) for array in arrays))
    content = got.tobytes()

    def judged(result: bytes) -> dict[str, Any]:
        return compared(expected.header(), expected.wanted, expected.positions or b"", result)

    assert judged(content)["wrong"] == 0
    assert judged(content)["compared"] > 0
    changed = np.frombuffer(content, stored(case.dtype)).copy()
    changed[:] = np.roll(changed, 1) if changed.size > 1 else changed * 1.01
    assert judged(changed.tobytes())["wrong"] > 0


def test_numbers_are_rounded_to_bf16_as_by_ml_dtypes() -> None:
    numbers = np.random.default_rng(1).standard_normal(10000).astype(np.float32)
    assert narrowed("bf16", numbers).tobytes() == numbers.astype(NUMPY["bf16"]).tobytes()


#: Bits of NaN as kernels write them.
NAN = {"f16": 0x7FFF, "bf16": 0x7FC0, "f32": 0x7FFFFFFF, "f64": 0xFFF8 << 48, "f8E5M2": 0x7F}


@pytest.mark.parametrize("dtype", [*NAN, "i1", "i8", "ui8", "i32", "ui64", "c64", "f4E2M1FN"])
def test_what_nothing_wrote_is_never_right(dtype: str) -> None:
    size = stored(dtype).itemsize
    bits = np.array([NAN.get(dtype, 0x5A) % (1 << 8 * size), 0, 1], f"u{min(size, 8)}")
    wanted = bits.tobytes()
    expected = exact(dtype, (3,), wanted).header()
    assert compared(expected, wanted, b"", wanted)["wrong"] == 0
    fill = fill_of(expected, wanted)
    said = compared(expected, wanted, b"", (fill * len(wanted))[: len(wanted)])
    assert said["wrong"] == 3
    last = compared(expected, wanted, b"", wanted[:-size] + (fill * size)[:size])
    assert (last["wrong"], last["first"]) == (1, [2])


@pytest.mark.parametrize(("dtype", "kind"), [("f16", "u2"), ("bf16", "u2"), ("f64", "u8"), ("c64", "u4")])
def test_results_may_have_the_bits_of_what_outputs_are_filled_with(dtype: str, kind: str) -> None:
    usual = fill_of(exact(dtype, (0,), b"").header(), b"")
    wanted = np.array([np.frombuffer(usual, kind)[0] - n for n in range(4)], kind).tobytes()
    expected = exact(dtype, (len(wanted) // stored(dtype).itemsize,), wanted).header()
    assert fill_of(expected, wanted) == (np.frombuffer(usual, kind) - 4).astype(kind).tobytes()
    assert compared(expected, wanted, b"", wanted)["wrong"] == 0


def test_values_that_are_not_compared_must_be_written_too() -> None:
    expected = near("f32", np.full(WHOLE + 1, np.nan), 0.0, 0.0)
    header, positions = expected.header(), expected.positions or b""
    got = np.full(WHOLE + 1, np.nan, np.float32)
    assert compared(header, expected.wanted, positions, got.tobytes())["wrong"] == 0
    (place,) = [at for at in range(100, 200) if at not in np.frombuffer(positions, "<i8")][:1]
    got[place : place + 1] = np.frombuffer(fill_of(header, expected.wanted), np.float32)
    said = compared(header, expected.wanted, positions, got.tobytes())
    assert (said["wrong"], said["unwritten"], said["first"]) == (1, 1, [place])


def test_bytes_that_have_all_values_are_filled_with_the_least_frequent_one() -> None:
    wanted = bytes(range(256)) * 2 + bytes(range(7)) + bytes(range(8, 256))
    assert fill_of(exact("ui8", (len(wanted),), wanted).header(), wanted) == b"\x07"


def test_seeded_values_are_the_same_everywhere() -> None:
    values = seeded("f32", (3, 5), 1)
    assert values.dtype == np.float32
    assert values.tobytes() == seeded("f32", (15,), 1).tobytes()
    table = seeded("f64", (1 << 20,), 2)
    assert abs(table.mean()) < 5e-3
    assert abs(table.std() - 1) < 5e-3
    assert np.abs(np.corrcoef(table[1:], table[:-1])[0, 1]) < 5e-3
