"""Calls with tensors that the caller checked: through the extension module, through cffi, on many threads."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.model.manifest import CountedOutput
from kcache_grpc.runtime.cpu import fast_call, torch_run
from kcache_grpc.runtime.cpu.openmp import openmp_of_torch
from kcache_grpc.runtime.cpu.python_pool import PythonThreads
from kcache_grpc.runtime.dtypes import PLAIN, torch_dtypes
from kcache_grpc.runtime.torch.call import TorchCall
from tests.runtime.c_kernels import ADD, copy_of, make
from tests.runtime.extension import built
from tests.runtime.test_fast_call import MANY, TWO, WAITS
from tests.runtime.test_native_threads import WHICH, pool
from tests.runtime.test_threads import VISIT

torch: Any = pytest.importorskip("torch")
pytest.importorskip("hatchling", reason="builds the extension module")


@pytest.fixture(params=["extension", "cffi"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How addresses reach the kernel."""
    module = built() if request.param == "extension" else None
    monkeypatch.setattr(fast_call, "extension", lambda: module)
    openmp_of_torch.cache_clear()
    yield request.param
    openmp_of_torch.cache_clear()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """PyTorch's number of threads, as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def adding() -> TorchCall:
    return TorchCall(make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"]))


def two() -> TorchCall:
    constants = [("f32[1]", np.array([2], np.float32).tobytes())]
    kernel = make(
        TWO, ["f32[s0]", "f64[]"], ["f32[s0]", "f64[]"], symbols=[("s0", 0, 0)], constants=constants
    )
    return TorchCall(kernel)


def test_outputs_are_new_tensors(way: str) -> None:
    call, x, y = adding(), torch.rand(4, 8), torch.rand(4, 8)
    results = [call([x, y])[0] for _ in range(3)]
    for result in results:
        assert torch.equal(result, x + y)
        assert result.is_contiguous()
        assert not result.requires_grad
        assert result.data_ptr() % 64 == 0
    assert len({result.data_ptr() for result in results}) == 3
    results[0].resize_(64, 8)  # the memory is PyTorch's own


@pytest.mark.parametrize("size", [1 << 10, 1 << 19], ids=["fresh", "recycled"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.usefixtures("way")
def test_outputs_are_the_callers_own(size: int, dtype: str) -> None:
    theirs, shape, kept = torch_dtypes()[dtype], (size // 4, 4), list[Any]()
    bytes_ = size * theirs.itemsize
    call = TorchCall(make(copy_of(bytes_), [f"{dtype}[{size // 4},4]"], [f"{dtype}[{size // 4},4]"]))
    for value in range(10):
        [result] = call([torch.full(shape, value, dtype=theirs)])
        assert (result.dtype, tuple(result.shape), result.data_ptr() % 64) == (theirs, shape, 0)
        assert result.is_contiguous()
        assert not result._is_view()
        kept.append(result)
    assert all(bool((result == value).all()) for value, result in enumerate(kept))


@pytest.mark.usefixtures("way")
def test_outputs_of_an_autograd_function_are_updated_in_place() -> None:
    call = TorchCall(make(copy_of(4 << 20), [f"f32[{1 << 20}]"], [f"f32[{1 << 20}]"]))

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return call([x])[0]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    x = torch.ones(1 << 20, requires_grad=True)
    Copy.apply(x).mul_(3).sum().backward()
    assert x.grad is not None
    assert bool((x.grad == 3).all())


@pytest.mark.usefixtures("way")
def test_parameters_subclasses_and_tuples_are_arguments() -> None:
    class Subclass(torch.Tensor):
        pass

    call, weight = adding(), torch.nn.Parameter(torch.rand(4, 8))
    for other in (torch.rand(4, 8), torch.rand(4, 8).as_subclass(Subclass)):
        for arguments in ([weight, other], (weight, other)):
            assert torch.equal(call(arguments)[0], (weight + other).detach())


@pytest.mark.parametrize("dtype", [*PLAIN, "f8E4M3FN", "f8E5M2"])
@pytest.mark.usefixtures("way")
def test_every_dtype(dtype: str) -> None:
    theirs = torch_dtypes()[dtype]
    x = torch.tensor([1, 0, 1]).to(theirs)
    [result] = TorchCall(make(copy_of(3 * x.element_size()), [f"{dtype}[3]"], [f"{dtype}[3]"]))([x])
    assert result.dtype == theirs
    assert result.tolist() == x.tolist()


@pytest.mark.usefixtures("way")
def test_symbols_constants_and_scalars() -> None:
    call = two()
    for size in (5, 0, 7, 7, 5):
        sums, difference = call([torch.arange(size).float(), torch.tensor(5.0, dtype=torch.float64)])
        assert sums.tolist() == [i + 2 for i in range(size)]
        assert (difference.item(), difference.shape) == (3, ())


@pytest.mark.usefixtures("way")
def test_sizes_are_checked_when_they_are_new() -> None:
    call = TorchCall(
        make(
            "RUN { return 0; }",
            ["f32[s0]", "f32[s0,3]"],
            ["f32[s0]"],
            symbols=[("s0", 0, 0)],
            guard="s0 <= 8",
        )
    )
    call([torch.rand(4), torch.rand(4, 3)])
    for tensors, reason in [
        ([torch.rand(5), torch.rand(4, 3)], "argument 1 .*axis 0 is 4 instead of 5"),
        ([torch.rand(9), torch.rand(9, 3)], "is 9, and this kernel is for s0 <= 8 only"),
        ([torch.rand(6), torch.rand(6, 3).double()], "got dtype f64"),
        ([torch.rand(6), torch.rand(6, 3, 1)], "rank 3"),
        ([torch.rand(6), torch.rand(3, 6).T], r"x\.contiguous\(\)"),
        ([torch.rand(6), torch.rand(6, 3, device="meta")], r"x\.cpu\(\)"),
        ([torch.rand(6), torch.rand(6, 3).to_sparse()], "to_dense"),
        ([torch.rand(6), np.zeros((6, 3), np.float32)], "got a ndarray"),
        ([torch.rand(6)], "takes 2 arguments"),
    ]:
        with pytest.raises(kcache.ArgumentError, match=reason):
            call(tensors)


@pytest.mark.usefixtures("way")
def test_plans_of_many_sizes_are_bounded() -> None:
    call = two()
    for size in (*range(600), 3):
        sums, _ = call([torch.zeros(size), torch.zeros((), dtype=torch.float64)])
        assert sums.shape == (size,)
    assert len(call._runs) <= 256


@pytest.mark.usefixtures("way")
def test_tensors_without_elements() -> None:
    call = TorchCall(make("RUN { return 0; }", ["f32[0,3]"], ["f32[0]", "bf16[3,0]"]))
    assert [tuple(result.shape) for result in call([torch.zeros(0, 3)])] == [(0,), (3, 0)]


@pytest.mark.usefixtures("way")
def test_no_tensors() -> None:
    body = "RUN { for (int i = 0; i < 4; i++) ((int32_t *)buffers[0])[i] = i; return 0; }"
    assert TorchCall(make(body, [], ["i32[4]"]))([])[0].tolist() == [0, 1, 2, 3]
    assert TorchCall(make("RUN { return 0; }", [], []))([]) == ()


@pytest.mark.usefixtures("way")
def test_more_buffers_than_fit_the_stack() -> None:
    body = "RUN { float sum = 0; for (int i = 0; i < 400; i++) sum += *(float *)buffers[i];"
    call = TorchCall(make(f"{body} *(float *)buffers[400] = sum; return 0; }}", ["f32[]"] * 400, ["f32[]"]))
    assert call([torch.tensor(float(i)) for i in range(400)])[0].item() == sum(range(400))
    call = TorchCall(make(MANY, ["f32[]"], ["f32[]"] * 62))
    assert [float(each) for each in call([torch.tensor(1.0)])] == [1 + i for i in range(62)]


@pytest.mark.usefixtures("way")
def test_a_misaligned_tensor_is_copied() -> None:
    call, y, memory = adding(), torch.ones(4, 8), bytearray(132)
    x = torch.frombuffer(memory, dtype=torch.float32, count=32, offset=1).view(4, 8)
    assert x.data_ptr() % 4
    for value in (1, 2):
        x.fill_(value)
        assert torch.equal(call([x, y])[0], torch.full((4, 8), value + 1.0))
        assert torch.equal(call([y, x])[0], torch.full((4, 8), value + 1.0))
    shifted = torch.arange(33.0)[1:].view(4, 8)  # aligned to its elements, which is enough
    assert torch.equal(call([shifted, y])[0], shifted + 1)


@pytest.mark.usefixtures("way")
def test_memory_that_is_exchanged_is_noticed() -> None:
    call, weight, y = adding(), torch.nn.Parameter(torch.zeros(4, 8)), torch.ones(4, 8)
    for value in range(20):
        weight.data = torch.full((4, 8), float(value))
        gc.collect()
        assert torch.equal(call([weight, y])[0], torch.full((4, 8), value + 1.0))


@pytest.mark.usefixtures("way")
def test_a_lazy_conjugate_is_rejected_in_each_call() -> None:
    call, x = TorchCall(make(copy_of(16), ["c64[2]"], ["c64[2]"])), torch.tensor([1 + 2j, 3j])
    assert torch.equal(call([x])[0], x)
    with pytest.raises(kcache.ArgumentError, match="resolve_conj"):
        call([x.conj()])
    assert torch.equal(call([x.conj().resolve_conj()])[0], torch.tensor([1 - 2j, -3j]))
    with pytest.raises(kcache.ArgumentError, match="resolve_neg"):
        TorchCall(make(copy_of(4), ["f32[1]"], ["f32[1]"]))([x.conj().imag[:1]])


@pytest.mark.usefixtures("way")
def test_a_code_of_the_kernel_is_its_error() -> None:
    call, x = two(), torch.ones(4)
    for _ in range(2):
        with pytest.raises(kcache.KcacheError, match="index out of range"):
            call([x, torch.tensor(3.0, dtype=torch.float64)])
        assert call([x, torch.tensor(5.0, dtype=torch.float64)])[1] == 3
    disagree = TorchCall(make("RUN { return 1; }", ["f32[s0]"], [], symbols=[("s0", 0, 0)]))
    with pytest.raises(kcache.ArgumentError, match="sizes of the arguments do not fit"):
        disagree([x])


@pytest.mark.usefixtures("way")
def test_a_strict_kernel_rejects_threads_that_flush_subnormal_numbers() -> None:
    call, x = TorchCall(make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"], numerics="strict")), torch.ones(4, 8)
    call([x, x])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush them")
    try:
        with pytest.raises(kcache.KcacheError, match="flushes subnormal"):
            call([x, x])
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(call([x, x])[0], x + x)


@pytest.mark.usefixtures("way")
def test_an_output_that_is_not_aligned_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        size = torch.Size(shape).numel()
        return torch.empty(size + 1, dtype=dtype)[1:].view(shape)

    monkeypatch.setattr(torch_run, "empty_function", lambda: empty)
    x = torch.rand(4, 8)
    [result] = adding()([x, x])
    assert result.data_ptr() % 64 == 0
    assert torch.equal(result, x + x)


@pytest.mark.usefixtures("way")
def test_without_functions_that_are_private_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_run, "empty_function", lambda: torch_run.public_empty)
    x = torch.rand(4, 8)
    with torch.device("meta"):
        [result] = adding()([x, x])
    assert torch.equal(result, x + x)


def test_kernels_that_are_called_otherwise() -> None:
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]", "i64[]"])
    binding = kernel.binding
    for field, value, reason in [
        ("counted", (CountedOutput(0, 0, 1),), "depend on data"),
        ("size_arguments", (0,), "takes sizes as arguments"),
    ]:
        kernel.binding = dataclasses.replace(binding, **{field: value})
        with pytest.raises(kcache.ArgumentError, match=reason):
            TorchCall(kernel)
    with pytest.raises(kcache.ArgumentError, match="no dtype for i4"):
        TorchCall(make(copy_of(3), ["i4[3]"], ["i4[3]"]))


@pytest.mark.usefixtures("way")
def test_many_threads_call_at_once() -> None:
    call, failures = two(), list[str]()

    def work(size: int) -> None:
        for value in range(200):
            sums, _ = call([torch.full((size,), float(value)), torch.tensor(1.0, dtype=torch.float64)])
            if not torch.equal(sums, torch.full((size,), value + 2.0)):
                failures.append(f"{size} {value}")

    running = [threading.Thread(target=work, args=(size,)) for size in (3, 3, 100, 5000)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert failures == []


@pytest.mark.usefixtures("way")
def test_other_threads_run_meanwhile() -> None:
    call = TorchCall(make(WAITS, ["f32[1]"] * 2, ["f32[1]"]))
    flag, begun = torch.zeros(1), torch.zeros(1)
    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append(call([flag, begun])[0].item()))
    thread.start()
    while not begun.numpy()[0] and thread.is_alive():
        pass
    flag[0] = 7
    thread.join()
    assert results == [7]


def test_a_list_that_changes_during_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_call, "extension", built)
    call = TorchCall(make(WAITS, ["f32[1]"] * 2, ["f32[1]"]))
    flag, begun = torch.zeros(1), torch.zeros(1)
    shared, seen = flag.numpy(), begun.numpy()
    arguments = [flag, begun]
    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append(call(arguments)[0].item()))
    thread.start()
    while not seen[0] and thread.is_alive():
        pass
    alive = weakref.ref(flag)
    arguments.clear()
    del flag
    assert alive() is not None
    shared[0] = 7
    thread.join()
    assert results == [7]


def hosts(share: bool, threads: Any) -> TorchCall:
    """Returns the address of its ``parallel_for`` and its number of workers."""
    kernel = make(WHICH, [], ["i64[2]"], launches=[("64", "1")], pool=True, threads=threads)
    return TorchCall(kernel, share_threads=share)


@pytest.mark.parametrize("share", [True, False])
def test_pytorch_decides_how_many_threads_work(way: str, share: bool) -> None:
    call = hosts(share, pool(8))
    for count in (1, 3, 2, 1, 64):
        torch.set_num_threads(count)
        address, workers = call([])[0].tolist()
        assert workers == min(count, 8)
        openmp = share and way == "extension"
        assert (address == built().openmp_parallel_for) == (openmp and count > 1)


@pytest.mark.usefixtures("way")
def test_threads_of_a_client_stay_its_own() -> None:
    call = hosts(True, PythonThreads(3))
    torch.set_num_threads(2)
    address, workers = call([])[0].tolist()
    assert (address != built().openmp_parallel_for, workers) == (True, 2)


def test_own_threads_replace_those_of_pytorch(way: str) -> None:
    call = hosts(True, pool(8))
    torch.set_num_threads(3)
    shared = call([])[0].tolist()
    call.use_own_threads()
    own = call([])[0].tolist()
    assert (shared[0] == built().openmp_parallel_for) == (way == "extension")
    assert own[0] != built().openmp_parallel_for
    assert shared[1] == own[1] == 3


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.usefixtures("way")
def test_every_index_is_visited_once(share: bool) -> None:
    kernel = make(
        VISIT,
        ["i8[s0]"],
        ["i32[s0]"],
        symbols=[("s0", 0, 0)],
        workspace="64*workers",
        launches=[("s0", "3")],
        threads=pool(4),
    )
    call = TorchCall(kernel, share_threads=share)
    for threads, size in itertools.product((4, 1, 3), (1, 7, 100, 5000, 100_000)):
        torch.set_num_threads(threads)
        assert bool((call([torch.zeros(size, dtype=torch.int8)])[0] == 1).all())


def test_a_launch_stops_at_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_call, "extension", built)
    openmp_of_torch.cache_clear()
    body = """
static int32_t task(void *closure, int64_t begin, int64_t end, int64_t worker) { return end == 4096 ? 3 : 0; }
RUN { return host ? host->parallel_for(host->ctx, 4096, 1, task, 0) : 9; }
"""
    torch.set_num_threads(2)
    call = TorchCall(make(body, ["f32[]"], [], launches=[("4096", "1")], threads=pool(2)))
    with pytest.raises(kcache.KcacheError, match="index out of range"):
        call([torch.tensor(1.0)])


def test_arguments_that_make_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_call, "extension", built)
    call_type, tensor = built().tensor_call_type, torch.zeros(1)
    good: dict[str, Any] = {
        "run": 1,
        "dims": 0,
        "host": 0,
        "strict": False,
        "tensor_class": torch.Tensor,
        "data_ptr": tensor.data_ptr,
        "masks": (3,),
        "constants": (),
        "makers": ((torch.empty, ((),)),),
        "keep": None,
    }
    call_type(**good)
    for name, value in [
        ("run", 0),
        ("run", "x"),
        ("dims", None),
        ("tensor_class", 3),
        ("data_ptr", len),
        ("data_ptr", lambda: 0),
        ("masks", [3]),
        ("masks", ("x",)),
        ("constants", (1 << 70,)),
        ("makers", (1,)),
        ("makers", ((torch.empty, 1),)),
        ("other", 1),
    ]:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call_type(**{**good, name: value})
    with pytest.raises(TypeError):
        call_type(**good).call([tensor])  # pyright: ignore[reportCallIssue]


def test_a_call_lets_go_of_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_call, "extension", built)
    call, x, odd = adding(), torch.zeros(4, 8), torch.zeros(4, 8, dtype=torch.float64)
    [result] = call([x, x])
    before = [sys.getrefcount(each) for each in (x, odd)]
    for _ in range(100):
        [result] = call([x, x])
    assert [sys.getrefcount(each) for each in (x, odd)] == before
    assert sys.getrefcount(result) == 2
    alive = weakref.ref(result)
    del result
    assert alive() is None
