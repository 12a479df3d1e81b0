"""Kernels with bound arguments through a real server: identity, values, rebinding, errors."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kcache_grpc as kcache
from kcache_grpc.cli import main
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.manifest import Manifest

LAYER = """
func.func @main(%x: tensor<30x64xf32>, %w: tensor<48x64xbf16>, %b: tensor<48xf32>) -> tensor<30x48xf32> {
  %wide = stablehlo.convert %w : (tensor<48x64xbf16>) -> tensor<48x64xf32>
  %0 = stablehlo.dot_general %x, %wide, contracting_dims = [1] x [1]
    : (tensor<30x64xf32>, tensor<48x64xf32>) -> tensor<30x48xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<48xf32>) -> tensor<30x48xf32>
  %2 = stablehlo.add %0, %1 : tensor<30x48xf32>
  return %2 : tensor<30x48xf32>
}"""
STRICT = kcache.Options(numerics="strict")
THREADS = 16
STEPS = ("update", "rebind", "replace", "fail")


def values(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import ml_dtypes

    draw = np.random.default_rng(seed)
    x, w, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((30, 64), (48, 64), (48,)))
    return x, w.astype(ml_dtypes.bfloat16), b


@pytest.fixture(scope="module")
def plain(client: kcache.Client) -> kcache.Kernel:
    return client.compile(LAYER, options=STRICT)


@pytest.fixture(scope="module")
def layer(client: kcache.Client) -> kcache.Kernel:
    return client.compile(LAYER, options=STRICT, bound=[2, 1])


def test_results_are_those_of_the_kernel_without_bound_arguments(plain: Any, layer: Any):
    for seed in range(3):
        x, w, b = values(seed)
        (result,) = layer.bind({"arg1": w, 2: b})(x)
        assert result.tobytes() == plain(x, w, b)[0].tobytes()


def test_the_bound_set_is_part_of_the_kernels_identity(client: kcache.Client, plain: Any, layer: Any):
    again = client.compile(LAYER, options=dataclasses.replace(STRICT, bound=(1, 2)))
    other = client.compile(LAYER, options=STRICT, bound=[1])
    digests = [kernel.manifest.kernel_digest for kernel in (plain, layer, again, other)]
    assert digests[1] == digests[2]
    assert len(set(digests)) == 3
    assert {kernel.key for kernel in (plain, layer, other)} == {plain.key}
    assert layer.manifest.preparation.arguments == (1, 2)
    assert plain.manifest.preparation is None
    assert Manifest.from_bytes(layer.manifest.to_bytes()) == layer.manifest


def test_rebinding_gives_the_results_of_the_new_values(plain: Any, layer: Any):
    x, w, b = values(1)
    bound = layer.bind({1: w, 2: b})
    (first,) = bound(x)
    w *= 2
    assert bound(x)[0].tobytes() == first.tobytes()
    bound.rebind()
    assert bound(x)[0].tobytes() == plain(x, w, b)[0].tobytes()
    bias = values(2)[2]
    bound.rebind({2: bias})
    assert bound(x)[0].tobytes() == plain(x, w, bias)[0].tobytes()


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=1, max_size=8))
@settings(max_examples=20)
def test_calls_read_the_last_binding(plain: Any, layer: Any, steps: list[tuple[str, int]]):
    """Updates in place count at the next ``rebind``; a failed one changes nothing."""
    x, w, b = values(0)
    bound, read = layer.bind({1: w, 2: b}), (w.copy(), b.copy())
    for step, seed in steps:
        _, weights, bias = values(seed)
        if step == "update":
            w[:], b[seed:] = weights, bias[seed:]
        elif step == "rebind":
            bound.rebind()
            read = (w.copy(), b.copy())
        elif step == "replace":
            b = bias
            bound.rebind({"arg2": b})
            read = (w.copy(), b.copy())
        else:
            with pytest.raises(ArgumentError):
                bound.rebind({1: w[:seed], 2: bias})
        assert bound(x)[0].tobytes() == plain(x, *read)[0].tobytes()


def test_each_call_reads_one_binding(plain: Any, layer: Any):
    """16 threads call while weights change in place and are bound again: no result mixes two bindings."""
    x, w, b = values(3)
    versions = [values(seed)[1:] for seed in range(4, 12)]
    expected = {plain(x, *version)[0].tobytes() for version in [(w, b), *versions]}
    bound = layer.bind({1: w, 2: b})

    def work(number: int) -> list[bytes]:
        return [bound(x)[0].tobytes() for _ in range(40)] if number else [change() for _ in range(5)]

    def change() -> bytes:
        for weights, bias in versions:
            w[:], b[:] = weights, bias
            bound.rebind()
        return bound(x)[0].tobytes()

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    assert {result for each in results for result in each} <= expected
    assert bound(x)[0].tobytes() == plain(x, *versions[-1])[0].tobytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({2: None}, r"argument 2 \(arg2\) must be f32\[48\]"),
        ({0: np.zeros((30, 64), np.float32)}, r"argument 0 is not bound; bound are 1 \(arg1\), 2 \(arg2\)"),
        ({"y": np.zeros(48, np.float32)}, "'y' is not bound"),
        ({2: np.zeros(48)}, "got dtype f64"),
        ({2: np.zeros(47, np.float32)}, r"got shape \(47,\)"),
        ({"arg2": np.zeros(48, np.float32)}, "by index and by name"),
    ],
)
def test_wrong_values_are_rejected_and_nothing_is_computed(layer: Any, change: dict[Any, Any], said: str):
    _, w, b = values(0)
    bound: dict[Any, Any] = {1: w, 2: b, **change}
    with pytest.raises(ArgumentError, match=said):
        layer.bind({key: value for key, value in bound.items() if value is not None})


def test_a_failed_rebind_leaves_the_earlier_binding(layer: Any):
    x, w, b = values(0)
    bound = layer.bind({1: w, 2: b})
    (first,) = bound(x)
    with pytest.raises(ArgumentError, match="got shape"):
        bound.rebind({2: np.zeros(3, np.float32)})
    assert bound(x)[0].tobytes() == first.tobytes()


def test_values_are_released(plain: Any, layer: Any):
    x, w, b = values(0)
    bound = layer.bind({1: w, 2: b}, keep=False)
    expected, released = plain(x, w, b)[0].tobytes(), weakref.ref(b)
    del b
    assert released() is None
    assert bound(x)[0].tobytes() == expected
    with pytest.raises(ArgumentError, match=r"argument 2 \(arg2\) .* keeps no values: give all of them"):
        bound.rebind({1: w})
    assert bound(x)[0].tobytes() == expected
    x, w, b = values(1)
    bound.rebind({1: w, 2: b})
    assert bound(x)[0].tobytes() == plain(x, w, b)[0].tobytes()


def resident_bytes() -> int:
    """Of this process."""
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) << 10


def test_memory_is_that_of_the_prepared_buffer(client: kcache.Client):
    rows, size = 64, 1024
    x, w = f"tensor<{rows}x{size}xf32>", f"tensor<{size}x{size}xf32>"
    product = f"""
    func.func @main(%x: {x}, %w: {w}) -> {x} {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {x}
      return %0 : {x}
    }}"""
    kernel = client.compile(product, bound=[1])
    assert kernel.manifest.preparation is not None
    ones = np.ones((rows, size), np.float32)
    kernel.bind({1: np.ones((size, size), np.float32)}, keep=False)(ones)  # loads the kernel
    before = resident_bytes()
    bound = [kernel.bind({1: np.full((size, size), number, np.float32)}, keep=False) for number in range(8)]
    # An array that was freed may stay with the allocator.
    assert resident_bytes() - before < 10 * kernel.manifest.preparation.prepared_bytes
    for number, each in enumerate(bound):
        assert (each(ones)[0] == number * size).all()


def test_calls_and_rebinding_take_no_memory(layer: Any):
    x, w, b = values(0)
    bound = layer.bind({1: w, 2: b})
    before = 0
    for call in range(12_000):
        if call % 1_000 == 0:
            gc.collect()
        if call == 2_000:
            before = resident_bytes()
        bound(x)
        if call % 10 == 0:
            bound.rebind()
    gc.collect()
    assert resident_bytes() - before < 1 << 20


def test_sizes_of_other_arguments_are_dynamic(client: kcache.Client):
    """One kernel and one prepared buffer for all sizes; results have the bits of the kernel without."""
    text = LAYER.replace("30x", "?x").replace(
        """  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<48xf32>) -> tensor<?x48xf32>""",
        """  %rows = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x64xf32>) -> tensor<i32>
  %rows1 = stablehlo.reshape %rows : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.constant dense<48> : tensor<1xi32>
  %s = stablehlo.concatenate %rows1, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %1 = stablehlo.dynamic_broadcast_in_dim %b, %s, dims = [1]
    : (tensor<48xf32>, tensor<2xi32>) -> tensor<?x48xf32>""",
    )
    plain = client.compile(text, options=STRICT, dynamic=True)
    kernel = client.compile(text, options=STRICT, dynamic=True, bound=[1, 2])
    _, w, b = values(4)
    bound = kernel.bind({1: w, 2: b})
    for rows in (1, 2, 31, 200, 31):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        assert bound(x)[0].tobytes() == plain(x, w, b)[0].tobytes()
    with pytest.raises(ArgumentError, match="axis 1 is 63 instead of 64"):
        bound(np.zeros((2, 63), np.float32))


_SHARES = """
import hashlib, sys
import numpy as np
import kcache_grpc as kcache

text, address, cache, share = sys.argv[1:]
kernel = kcache.Client(address, cache_dir=cache).compile(text, bound=[1])
draw = np.random.default_rng(0)
x, w = draw.standard_normal((8, 256), np.float32), draw.standard_normal((256, 256), np.float32)
bound = kernel.bind({1: w}, keep=False, share=share)
(result,) = bound(x)
np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-4)
mapped = [line for line in open("/proc/self/maps") if share in line]
assert len(mapped) == 1 and mapped[0].split()[1] == "r--s", mapped
print(hashlib.sha256(result).hexdigest())
"""
_PRODUCT = """
func.func @main(%x: tensor<8x256xf32>, %w: tensor<256x256xf32>) -> tensor<8x256xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  return %0 : tensor<8x256xf32>
}"""


def test_processes_map_one_file(client: kcache.Client, tmp_path: Path):
    share = tmp_path / "prepared"
    client.compile(_PRODUCT, bound=[1])
    words = [_PRODUCT, client.service, str(client.cache_dir), str(share)]
    command = [sys.executable, "-c", _SHARES, *words]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    results = {process.communicate(timeout=200)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(results) == 1
    [file] = share.iterdir()
    assert (share.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("damage", ["truncated", "modified", "renamed", "open to others", "a link"])
def test_a_damaged_file_is_prepared_again(plain: Any, layer: Any, tmp_path: Path, damage: str):
    x, w, b = values(0)
    expected = plain(x, w, b)[0].tobytes()
    assert layer.bind({1: w, 2: b}, share=tmp_path / "prepared")(x)[0].tobytes() == expected
    [file] = (tmp_path / "prepared").iterdir()
    content = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(content[:-1])
    elif damage == "modified":
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "renamed":  # that of other weights
        _, w, b = values(1)
        expected = plain(x, w, b)[0].tobytes()
        layer.bind({1: w, 2: b}, share=tmp_path / "others")
        [other] = (tmp_path / "others").iterdir()
        content = other.read_bytes()
        (tmp_path / "prepared" / other.name).write_bytes(file.read_bytes())
        file = tmp_path / "prepared" / other.name
    elif damage == "open to others":
        file.chmod(0o666)
    else:
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    assert layer.bind({1: w, 2: b}, share=tmp_path / "prepared")(x)[0].tobytes() == expected
    assert file.read_bytes() == content
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600


def test_shared_values_follow_rebinding(plain: Any, layer: Any, tmp_path: Path):
    x, w, b = values(0)
    bound = layer.bind({1: w, 2: b}, share=tmp_path / "prepared")
    w *= 2
    bound.rebind()
    assert bound(x)[0].tobytes() == plain(x, w, b)[0].tobytes()
    assert len(list((tmp_path / "prepared").iterdir())) == 2


def test_values_are_shared_in_a_directory_of_ones_own(layer: Any, tmp_path: Path):
    _, w, b = values(0)
    tmp_path.chmod(0o755)
    with pytest.raises(ArgumentError, match=r"prepared values cannot be shared: .* is open to other users"):
        layer.bind({1: w, 2: b}, share=tmp_path)
    assert not list(tmp_path.iterdir())


def test_misuse_is_rejected(client: kcache.Client, plain: Any, layer: Any):
    x, w, b = values(0)
    with pytest.raises(ArgumentError, match=r"bound arguments \(arg1, arg2\)"):
        layer(x, w, b)
    with pytest.raises(ArgumentError, match="takes 1 arguments"):
        layer.bind({1: w, 2: b})(x, w, b)
    with pytest.raises(ArgumentError, match="compiled without bound arguments"):
        plain.bind({1: w})
    with pytest.raises(ArgumentError, match="argument 3 is to be bound, and the program has 3 inputs"):
        client.compile(LAYER, bound=[3])
    with pytest.raises(ArgumentError, match="they are for CPUs"):
        client.compile(LAYER, target="sm_90", bound=[1])
    words = r"argument 1 is to be bound, and has dynamic sizes: bf16\[s\d,64\]"
    with pytest.warns(KcacheWarning), pytest.raises(ArgumentError, match=words):
        client.compile(LAYER, dynamic="assume", symbols=[(1, 0)], bound=[1])
    with pytest.raises(ArgumentError, match=r"bound arguments \(arg1, arg2\)"):
        layer.plan(layer.read([x, w, b]), lambda threads: threads)
    with pytest.raises(ArgumentError, match="kernels with bound arguments are not tuned"):
        client.autotune(LAYER, options=layer.manifest.options)
    with pytest.raises(ArgumentError, match="brings no weights"):
        client.compile(LAYER, bound="weights")


def test_a_manifest_must_prepare_what_its_options_bind(layer: Any):
    wrong = dataclasses.replace(layer.manifest, preparation=None)
    with pytest.raises(IntegrityError, match="its options bind"):
        Manifest.from_bytes(wrong.to_bytes())


def test_the_command_line_compiles_kernels_with_bound_arguments(client: kcache.Client, tmp_path: Path):
    program, code = tmp_path / "layer.mlir", tmp_path / "layer.so"
    program.write_text(LAYER)
    bound = ["--bound", "1", "--bound", "2"]
    where = ["--addr", client.service, "--cache-dir", str(client.cache_dir)]
    words = ["compile", str(program), "--numerics", "strict", *bound, "--emit", "so", "-o", str(code), *where]
    assert main(words) == 0
    library = ctypes.CDLL(str(code))
    assert library.kcache_abi() == 2
    assert library.kcache_prepare


def test_fine_tuned_modules_share_one_kernel(client: kcache.Client):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_mlir")

    def exported(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        parts = [torch.nn.Linear(128, 192), torch.nn.GELU(), torch.nn.Linear(192, 128)]
        module = torch.nn.Sequential(*parts).eval().requires_grad_(False)
        return module, torch.export.export(module, (torch.zeros(32, 128),))

    x = torch.randn(32, 128)
    (first, program), (second, variant) = exported(1), exported(2)
    kernel, other = (client.compile(each, bound="weights") for each in (program, variant))
    assert kernel.manifest.kernel_digest == other.manifest.kernel_digest
    assert other.origin == "memory"
    for module, bound in ((first, kernel), (second, other)):
        torch.testing.assert_close(bound(x)[0], module(x))
    first[0].weight.mul_(3)
    kernel.rebind()
    torch.testing.assert_close(kernel(x)[0], first(x))
