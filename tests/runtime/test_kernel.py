"""What a kernel promises to whoever holds it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gc
import hashlib
from typing import Any

import numpy as np
import pytest

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError, NotFound
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.cpu.memory import shared_workspaces
from tests.runtime.c_kernels import ADD, copy_of, make, shared_object

SHAPE = (4, 8)


def add_kernel(**more):
    return make(ADD, ["f32[4,8]", "f32[4,8]"], ["f32[4,8]"], names=["left", "right"], **more)


def ones(dtype: Any = np.float32):
    return np.ones(SHAPE, dtype)


def test_numpy_in_numpy_out():
    kernel = add_kernel()
    x, y = np.arange(32, dtype=np.float32).reshape(SHAPE), ones()
    for _ in range(3):
        (result,) = kernel(x, y)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, x + y)


def test_outputs_are_aligned_apart_and_the_callers_own():
    kernel = add_kernel()
    results = [kernel(ones() * i, ones())[0] for i in range(200)]
    addresses = [result.ctypes.data for result in results]
    assert all(address % 64 == 0 for address in addresses)
    assert len(set(addresses)) == len(addresses)
    assert all((result == i + 1).all() and result.flags.writeable for i, result in enumerate(results))


def test_large_outputs_are_aligned_too():
    body = "RUN { float *out = buffers[1]; for (int i = 0; i < 5000; i++) out[i] = i; return 0; }"
    kernel = make(body, ["f32[]"], ["f32[5000]", "f32[3]"])
    for _ in range(4):
        large, small = kernel(1.0)
        assert large.ctypes.data % 64 == 0
        assert small.ctypes.data % 64 == 0
        assert large[4999] == 4999


def test_one_array_may_be_both_arguments():
    x = ones()
    np.testing.assert_array_equal(add_kernel()(x, x)[0], x + x)


def test_read_only_arrays_are_fine():
    x = ones()
    x.flags.writeable = False
    np.testing.assert_array_equal(add_kernel()(x, x)[0], x + x)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (ones(np.float64), "got dtype f64"),
        (ones(np.int8), "got dtype i8"),
        (ones().astype(">f4"), "byte order"),
        (np.ones(32, np.float32), "got rank 1"),
        (np.ones((4, 9), np.float32), "axis 1 is 9 instead of 8"),
        (np.ones((8, 4), np.float32).T, "np.ascontiguousarray"),
        (np.ones((8, 8), np.float32)[::2], "np.ascontiguousarray"),
        (np.frombuffer(bytes(129), np.uint8)[1:].view(np.float32).reshape(SHAPE), "not aligned"),
        (np.ma.masked_array(ones()), "masked"),
        ([[1.0] * 8] * 4, "list"),
        (None, "NoneType"),
        (1.0, "got rank 0"),
        (np.array([["x"] * 8] * 4), "got dtype str"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("warm", [False, True])
def test_wrong_arguments_are_named(wrong, says, which, warm):
    kernel = add_kernel()
    if warm:
        kernel(ones(), ones())
    arguments = [ones(), ones()]
    arguments[which] = wrong
    with pytest.raises(ArgumentError) as caught:
        kernel(*arguments)
    text = str(caught.value)
    assert says in text
    assert f"argument {which} ({('left', 'right')[which]}) must be f32[4,8]" in text
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_arguments(count):
    with pytest.raises(ArgumentError, match=r"takes 2 arguments \(left: f32\[4,8\], right: f32\[4,8\]\)"):
        add_kernel()(*[ones()] * count)


def test_a_kernel_without_argument_names():
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"], names=())
    with pytest.raises(ArgumentError, match=r"argument 1 \(arg1\)"):
        kernel(ones(), 3.0)


def test_error_codes_become_their_meaning():
    for code, meaning in ((3, "index out of range"), (9, "does not list")):
        with pytest.raises(KcacheError, match=f"code {code}: .*{meaning}"):
            make(f"RUN {{ return {code}; }}", [], [])()


def test_no_arguments_no_results():
    assert make("RUN { return 0; }", [], [])() == ()


def test_symbols_give_shapes_dims_and_workspace():
    body = """
    RUN { int64_t a = dims[0], b = dims[1]; const double *x = buffers[0], *y = buffers[1];
        double *out = buffers[2], *scratch = workspace;
        if ((uintptr_t)workspace % 64) return 9;
        for (int64_t i = 0; i < a * b; i++) scratch[i] = x[i] * y[i % b];
        for (int64_t i = 0; i < a * b; i++) out[i] = out[i + a * b] = scratch[i];
        return 0; }
    """
    kernel = make(
        body,
        ["f64[s0,s1]", "f64[s1]"],
        ["f64[2*s0,s1]"],
        symbols=[("s0", 0, 0), ("s1", 0, 1)],
        workspace="s0*s1*8*workers",
    )
    for a, b in [(3, 5), (1, 1), (100, 7), (3, 5), (0, 4), (2, 0)]:
        x, y = np.random.default_rng(0).normal(size=(a, b)), np.arange(b, dtype=float)
        (result,) = kernel(x, y)
        assert result.shape == (2 * a, b)
        np.testing.assert_array_equal(result, np.concatenate([x * y, x * y]))
    with pytest.raises(ArgumentError, match=r"axis 0 is 6 instead of 5 \(s1 = 5 from axis 1 of argument 0\)"):
        kernel(np.zeros((3, 5)), np.zeros(6))


@pytest.mark.parametrize("warm", [False, True])
def test_sizes_that_only_the_kernel_can_compare(warm):
    body = "RUN { if (dims[0] != dims[1]) return 1; *(int64_t *)buffers[2] = dims[0]; return 0; }"
    symbols = [("s0", 0, 0), ("s1", 1, 1)]
    kernel = make(body, ["f32[s0,4]", "f32[4,s1]"], ["i64[]"], symbols=symbols)
    if warm:
        assert kernel(np.ones((7, 4), np.float32), np.ones((4, 7), np.float32)) == (7,)
    says = "do not fit each other or the program: axis 0 of argument 0 is 7, axis 1 of argument 1 is 5"
    for _ in range(3):
        with pytest.raises(ArgumentError, match=says):
            kernel(np.ones((7, 4), np.float32), np.ones((4, 5), np.float32))


def test_sizes_that_make_a_workspace_of_less_than_nothing():
    """As buffers of ``s0 - 2`` rows do: the kernel means nothing at such sizes, no memory is asked for."""
    body = "RUN { if (dims[0] < 2) return 1; *(int64_t *)buffers[1] = dims[0]; return 0; }"
    kernel = make(body, ["f32[s0]"], ["i64[]"], symbols=[("s0", 0, 0)], workspace="s0*800 + -1600")
    shared_workspaces.cache_clear()  # what calls before left is enough for anything
    for size in (1, 0, 1):
        with pytest.raises(ArgumentError, match=f"do not fit .*: axis 0 of argument 0 is {size}"):
            kernel(np.ones(size, np.float32))
    assert [kernel(np.ones(size, np.float32))[0] for size in (2, 3)] == [2, 3]


def test_guards_and_products_are_checked_before_the_call():
    """Of a vector of rows*columns elements, and only for an even number of rows."""
    symbols = [("s0", 0, 0), ("s1", 0, 1)]
    guard = "2 <= s0 & s0 % 2 == 0 & s1 <= 8"
    kernel = make(
        "RUN { ((int64_t *)buffers[2])[0] = dims[0] * 100 + dims[1]; return 0; }",
        ["i8[s0,s1]", "i8[2*s0*s1]"], ["i64[]"], symbols=symbols, guard=guard,
    )  # fmt: skip

    def call(rows: int, columns: int, flat: int) -> int:
        (result,) = kernel(np.zeros((rows, columns), np.int8), np.zeros(flat, np.int8))
        return int(result)

    assert [call(2, 3, 12), call(4, 8, 64), call(2, 0, 0)] == [203, 408, 200]
    from_rows = r"\(s0 = 2 from axis 0 of argument 0, s1 = 3 from axis 1"
    for sizes, says in (
        ((3, 3, 18), r"axis 0 \(s0\) is 3, and this kernel is for s0 % 2 == 0 only \(its guard: 2 <= s0 &"),
        ((0, 3, 0), r"axis 0 \(s0\) is 0, and this kernel is for 2 <= s0 only"),
        ((2, 9, 36), r"axis 1 \(s1\) is 9, and this kernel is for s1 <= 8 only"),
        ((2, 3, 6), rf"argument 1 .* axis 0 is 6 instead of 12 {from_rows}"),
    ):
        with pytest.raises(ArgumentError, match=says):
            call(*sizes)
    assert call(2, 3, 12) == 203
    assert "i8[s0,s1];i8[2*s0*s1] if 2 <= s0" in repr(kernel)


@pytest.mark.parametrize("guard", ["s0 is even", "s1 == 4", "s0 == 4 & s0 == 5"])
def test_a_guard_that_is_not_understood_is_not_ignored(guard):
    kernel = make("RUN { return 0; }", ["i8[s0]"], [], symbols=[("s0", 0, 0)], guard=guard)
    with pytest.raises(ArgumentError, match="cannot evaluate"):
        kernel(np.zeros(4, np.int8))


def test_sizes_whose_product_has_no_value():
    symbols = [("s0", 0, 0), ("s1", 1, 0)]
    kernel = make("RUN { return 0; }", ["i8[s0,0]", "i8[s1,0]"], ["i8[s0*s1]"], symbols=symbols)
    with pytest.raises(ArgumentError, match=r"too large: formula 's0\*s1'"):
        kernel(np.zeros((2**40, 0), np.int8), np.zeros((2**40, 0), np.int8))


@pytest.mark.parametrize("output", ["i8[s0%s1]", "i8[s0-s0%s1]"])
def test_a_size_divided_by_a_size_of_0(output):
    symbols = [("s0", 0, 0), ("s1", 1, 0)]
    kernel = make("RUN { return 0; }", ["i8[s0]", "i8[s1]"], [output], symbols=symbols)
    with pytest.raises(ArgumentError, match=r"not for these sizes: formula .* divides by zero"):
        kernel(np.zeros(4, np.int8), np.zeros(0, np.int8))


def test_sizes_that_leave_less_than_nothing():
    kernel = make("RUN { return 0; }", ["i8[s0]"], ["i8[s0-4]"], symbols=[("s0", 0, 0)])
    assert kernel(np.zeros(5, np.int8))[0].shape == (1,)
    with pytest.raises(ArgumentError, match=r"output of shape \(-1,\)"):
        kernel(np.zeros(3, np.int8))
    with pytest.raises(IntegrityError, match="its manifest is wrong"):
        make("RUN { return 0; }", [], ["i8[3-4]"])()


def test_many_sizes_do_not_pile_up():
    body = "RUN { *(int64_t *)buffers[1] = dims[0]; return 0; }"
    kernel = make(body, ["i8[s0]"], ["i64[]"], symbols=[("s0", 0, 0)])
    for size in range(600):
        assert kernel(np.zeros(size, np.int8))[0] == size


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("i1", np.array([True, False, True])),
        *[(f"i{bits}", np.array([1, -2, 3], f"i{bits // 8}")) for bits in (8, 16, 32, 64)],
        *[(f"ui{bits}", np.array([1, 2, 255], f"u{bits // 8}")) for bits in (8, 16, 32, 64)],
        *[(f"f{bits}", np.array([1, -0.0, np.inf], f"f{bits // 8}")) for bits in (16, 32, 64)],
        *[(f"c{bits}", np.array([1, 2j, -3], f"c{bits // 8}")) for bits in (64, 128)],
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_dtype_of_numpy(dtype, values):
    kernel = make(copy_of(values.nbytes), [f"{dtype}[3]"], [f"{dtype}[3]"])
    for _ in range(2):
        (result,) = kernel(values)
        assert result.dtype == values.dtype
        assert result.tobytes() == values.tobytes()


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -2, np.nan], ml_dtypes.bfloat16)
    kernel = make(copy_of(6), ["bf16[3]"], ["bf16[3]"])
    for _ in range(2):
        (result,) = kernel(values)
        assert result.dtype == values.dtype
        assert result.tobytes() == values.tobytes()
    with pytest.raises(ArgumentError, match="got dtype ui16"):
        kernel(values.view(np.uint16))
    with pytest.raises(ArgumentError, match="ascontiguousarray"):
        kernel(np.repeat(values, 2)[::2])


def test_zero_size_arrays():
    kernel = make("RUN { return 0; }", ["f32[0,3]", "f32[2,0]"], ["f32[3,0]", "f32[0]"])
    for _ in range(2):
        first, second = kernel(np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32))
        assert (first.shape, second.shape) == ((3, 0), (0,))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("f32", 2.5, np.float32(2.5)),
        ("f32", 0.1, np.float32(0.1)),
        ("f64", 3, np.float64(3)),
        ("f32", float("inf"), np.float32("inf")),
        ("i32", -7, np.int32(-7)),
        ("ui8", 255, np.uint8(255)),
        ("i1", True, np.bool_(True)),
        ("c64", 1 + 2j, np.complex64(1 + 2j)),
        ("f16", np.float16(1.5), np.float16(1.5)),
        ("i64", np.array(5), np.int64(5)),
    ],
)
def test_scalars_for_rank_0(dtype, value, expected):
    kernel = make(copy_of(expected.nbytes), [f"{dtype}[]"], [f"{dtype}[]"])
    (result,) = kernel(value)
    assert result.shape == ()
    assert result.dtype == expected.dtype
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("f32", 1e300),
        ("i8", 128),
        ("ui8", -1),
        ("i32", 1.0),
        ("f32", True),
        ("i1", 1),
        ("f32", 1j),
        ("f16", 1e6),
    ],
)
def test_scalars_that_do_not_fit(dtype, value):
    kernel = make(copy_of(1), [f"{dtype}[]"], [f"{dtype}[]"])
    with pytest.raises(ArgumentError, match=r"argument 0 \(x0\)"):
        kernel(value)


def test_lifted_constants_lie_between_inputs_and_outputs():
    content = np.arange(4, dtype=np.float32).tobytes()
    body = """RUN { const float *x = buffers[0], *c = buffers[1]; float *out = buffers[2];
        if ((uintptr_t)c % 64) return 9;
        for (int i = 0; i < 4; i++) out[i] = x[i] + c[i];
        return 0; }"""
    kernel = make(body, ["f32[4]"], ["f32[4]"], constants=[("f32[4]", content)])
    for _ in range(2):
        np.testing.assert_array_equal(kernel(np.ones(4, np.float32))[0], [1, 2, 3, 4])


def test_constants_are_verified():
    good = make("RUN { return 0; }", [], [], constants=[("f32[1]", b"abcd")])
    for wrong in ([], [b"abce"], [b"abc"]):
        kernel = Kernel(good.manifest, good.binding, "disk", {}, lambda ref: good.artifact(ref.kind), wrong)
        with pytest.raises(IntegrityError, match="constant"):
            kernel.load()


def test_artifacts_by_kind():
    kernel = add_kernel()
    assert kernel.artifact("so")[:4] == b"\x7fELF"
    assert kernel.artifact("llvm") == b"; IR"
    with pytest.raises(NotFound, match="no artifact 'asm'; it has so, llvm, mlir"):
        kernel.artifact("asm")
    assert (kernel.key, kernel.origin, len(kernel.spec_digest)) == (7, "compiled", 32)
    assert repr(kernel).startswith("<Kernel 7 f32[4,8];f32[4,8] -> f32[4,8]")


def test_nothing_is_loaded_before_it_is_verified():
    so = bytearray(shared_object(ADD))
    so[-1] ^= 1
    kernel = add_kernel(artifacts={"so": bytes(so)})
    for use in (kernel.load, lambda: kernel(ones(), ones()), lambda: kernel.artifact("so")):
        with pytest.raises(IntegrityError, match="digest"):
            use()
    with pytest.raises(IntegrityError, match="bytes instead of"):
        add_kernel(artifacts={"so": b""}).load()


def test_artifacts_are_fetched_once_and_when_needed():
    fetched = []
    kernel = add_kernel(artifacts={}, fetch=lambda ref: (fetched.append(ref.kind), shared_object(ADD))[1])
    assert fetched == []
    kernel.load()
    kernel.load()
    kernel(ones(), ones())
    assert fetched == ["so"]


def test_what_is_not_a_kernel_is_rejected():
    for content, says in ((b"no ELF at all", "cannot be loaded"), (b"", "cannot be loaded")):
        kernel = add_kernel()
        manifest = _with_so(kernel, content)
        broken = Kernel(manifest, kernel.binding, "disk", {"so": content}, lambda ref: b"", ())
        with pytest.raises(IntegrityError, match=says):
            broken.load()
    other = shared_object("RUN { return 0; }", 2)
    kernel = Kernel(_with_so(add_kernel(), other), kernel.binding, "disk", {"so": other}, lambda ref: b"", ())
    with pytest.raises(IntegrityError, match="says ABI 2, its manifest 1"):
        kernel.load()


def _with_so(kernel, content):
    ref = dataclasses.replace(
        kernel.manifest.artifact("so"), sha256=hashlib.sha256(content).digest(), size=len(content)
    )
    return dataclasses.replace(kernel.manifest, artifacts=(ref,))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"abi": 3}, "version 3 of the C ABI"),
        ({"required_isa": ("avx9000", "sse4.2")}, "lacks avx9000;"),
        ({"target": CpuTarget("aarch64")}, "lacks aarch64-unknown-linux-gnu"),
        ({"guard": "s0 % 8 == 0"}, "guard"),
    ],
)
def test_what_cannot_run_here_says_so_and_can_be_read(settings, says, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    kernel = add_kernel(**settings)
    with pytest.raises(ArgumentError, match=says):
        kernel(ones(), ones())
    assert kernel.artifact("so")


def test_other_systems_get_a_typed_error(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ArgumentError, match="Linux only, this is darwin"):
        add_kernel(target=CpuTarget("x86-64-v2")).load()


def test_kernels_loaded_one_after_another_are_different_libraries():
    """dlopen knows libraries by path, and a descriptor's number comes again."""
    kernels = [make(f"RUN {{ *(int32_t *)buffers[0] = {i}; return 0; }}", [], ["i32[]"]) for i in range(20)]
    assert [int(kernel()[0]) for kernel in kernels] == list(range(20))
    assert [int(kernel()[0]) for kernel in kernels] == list(range(20))


def test_a_system_without_anonymous_files(monkeypatch):
    def reject(name):
        raise PermissionError("no memfd")

    monkeypatch.setattr("os.memfd_create", reject)
    np.testing.assert_array_equal(add_kernel()(ones(), ones())[0], ones() + 1)


def test_calls_from_many_threads():
    body = """
    RUN { int64_t n = dims[0]; const double *x = buffers[0]; double *out = buffers[1], *scratch = workspace;
        for (int round = 0; round < 50; round++)
            for (int64_t i = 0; i < n; i++) scratch[i] = x[i] + round;
        for (int64_t i = 0; i < n; i++) out[i] = scratch[i];
        return 0; }
    """
    kernel = make(body, ["f64[s0]"], ["f64[s0]"], symbols=[("s0", 0, 0)], workspace="s0*8")

    def work(seed):
        sizes = np.random.default_rng(seed).integers(1, 3000, 60)
        return all(np.array_equal(kernel(np.full(n, float(seed)))[0], np.full(n, seed + 49.0)) for n in sizes)

    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        assert all(executor.map(work, range(16)))


def test_a_result_outlives_its_kernel():
    kernel = add_kernel()
    (result,) = kernel(ones(), ones())
    del kernel
    gc.collect()
    assert (result == 2).all()
