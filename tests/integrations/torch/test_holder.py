"""Eager kernels against a real server, compared with eager mode."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

import kcache_grpc as kcache
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.torch import KernelHolder, register, unregister

pytestmark = [pytest.mark.issue(number=20, point=5), pytest.mark.timeout(900)]

Case = tuple[str, Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]]

_UNARY = """relu abs neg exp sigmoid tanh sqrt rsqrt sin cos floor ceil log1p reciprocal erf sign expm1 round
    trunc""".split()  # noqa: SIM905
_BINARY = "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum atan2 eq.Tensor lt.Tensor".split()  # noqa: SIM905
CASES: list[Case] = [
    *((f"aten::{name}", lambda x, y: (x,)) for name in _UNARY),
    *((f"aten::{name}", lambda x, y: (x, y)) for name in _BINARY),
    ("aten::_softmax", lambda x, y: (x, -1, False)),
    ("aten::_log_softmax", lambda x, y: (x, -1, False)),
    ("aten::sum.dim_IntList", lambda x, y: (x, [-1])),
    ("aten::mean.dim", lambda x, y: (x, [0])),
    ("aten::amax", lambda x, y: (x, [1])),
    ("aten::mm", lambda x, y: (x, y.t())),
    ("aten::cat", lambda x, y: ([x, y], 0)),
    ("aten::where.self", lambda x, y: (x > 0, x, y)),
    ("aten::clamp", lambda x, y: (x, -0.5, 0.5)),
    ("aten::leaky_relu", lambda x, y: (x, 0.1)),
    ("aten::gelu", lambda x, y: (x,)),
    ("aten::native_layer_norm", lambda x, y: (x, [x.shape[-1]], None, None, 1e-5)),
]
SETS = [
    (4, 8, torch.float32),
    (1, 5, torch.float32),
    (6, 3, torch.float64),
    (0, 4, torch.float32),
    (33, 17, torch.float32),
]


def inputs(rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    x = torch.rand(rows, columns, generator=generator, dtype=dtype) + 0.25
    return x, torch.rand(rows, columns, generator=generator, dtype=dtype) - 0.5


def check(case: Case, sets: list[tuple[int, int, torch.dtype]], client: kcache.Client) -> dict[str, int]:
    """Calls with each metadata set, twice, agree with eager mode in numbers, dtype and strides."""
    name, arguments = case
    holder = KernelHolder(name, client=client)
    for rows, columns, dtype in sets:
        args = arguments(*inputs(rows, columns, dtype))
        for _ in range(2):
            ours, eager = holder(*args), holder.op(*args)
            torch.testing.assert_close(ours, eager, equal_nan=True)
            pair = [(ours, eager)] if isinstance(ours, torch.Tensor) else list(zip(ours, eager, strict=True))
            assert all(mine.stride() == theirs.stride() for mine, theirs in pair)
    return holder.stats()


def test_there_are_40_operators() -> None:
    assert len({name for name, _ in CASES}) == 40
    assert len(SETS) == 5


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", CASES[::6], ids=[name for name, _ in CASES[::6]])
def test_operators_agree_with_eager_mode(case: Case, client: kcache.Client) -> None:
    stats = check(case, SETS[:2], client)
    assert stats["hits"] == 4, stats


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[name for name, _ in CASES])
def test_all_operators_agree_with_eager_mode(case: Case, client: kcache.Client) -> None:
    stats = check(case, SETS, client)
    assert stats["hits"] == 10, stats


def _of_another_toolchain(line: bytes) -> bytes:
    """The line of a table, for a kernel that another toolchain of the service compiled."""
    value = json.loads(line)
    value["entry"]["toolchain"] = hashlib.sha256(b"another").hexdigest()
    rest = json.dumps(value, separators=(",", ":")).encode()[len('{"check":"') + 8 :]
    return b'{"check":"%08x%b\n' % (zlib.crc32(rest), rest)


@pytest.mark.parametrize("dynamic", [False, True])
def test_entries_of_another_toolchain_of_the_service_are_skipped_counted_and_built_again(
    client: kcache.Client, dynamic: bool
) -> None:
    x = torch.arange(12.0).reshape(3, 4)

    def counted() -> dict[str, int]:
        holder = KernelHolder("aten::mul.Tensor", client=client, strict=True, dynamic=dynamic)
        assert torch.equal(holder(x, x), x * x)
        stats = holder.stats()
        return {name: stats[name] for name in ("loaded", "built", "table_skipped", "table_corrupt")}

    assert counted() == {"loaded": 0, "built": 1, "table_skipped": 0, "table_corrupt": 0}
    (table,) = client.cache_dir.glob("**/*.jsonl")
    old = _of_another_toolchain(table.read_bytes())
    table.write_bytes(old)
    assert counted() == {"loaded": 0, "built": 1, "table_skipped": 1, "table_corrupt": 0}
    first, second = table.read_bytes().splitlines(keepends=True)
    assert first == old
    assert json.loads(second)["entry"]["toolchain"] != json.loads(first)["entry"]["toolchain"]
    assert counted() == {"loaded": 1, "built": 0, "table_skipped": 1, "table_corrupt": 0}


_CHILD = """
import json, sys, torch
class Reject:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch_mlir":
            raise ImportError("torch-mlir is not needed")
sys.meta_path.insert(0, Reject())
import kcache_grpc as kcache
from kcache_grpc.torch import KernelHolder
client = kcache.Client(sys.argv[1], cache_dir=sys.argv[2], strict=True)
holder = KernelHolder("aten::mul.Tensor", client=client, strict=True)
x = torch.arange(12.0).reshape(3, 4)
assert torch.equal(holder(x, x), x * x)
print(json.dumps({"holder": holder.stats(), "client": dict(client.stats().client)}))
"""


def test_a_second_process_loads_the_table_and_compiles_nothing(client: kcache.Client, address: str) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    first = KernelHolder("aten::mul.Tensor", client=client, strict=True)
    assert torch.equal(first(x, x), x * x)
    assert first.stats()["built"] == 1
    compiles = client.stats().compiles
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, address, str(client.cache_dir)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert '"built": 0' in told
    assert '"loaded": 1' in told
    assert "compiled_kernels" not in told
    assert client.stats().compiles == compiles


def test_metadata_that_differs_has_other_kernels(client: kcache.Client) -> None:
    holder = KernelHolder("aten::add.Tensor", client=client, strict=True)
    x = torch.ones(2, 3)
    assert holder(x, 1).dtype == holder(x, True).dtype == torch.float32
    assert torch.equal(holder(x, x, alpha=2), torch.full((2, 3), 3.0))
    assert torch.equal(holder(x, x.t().contiguous().t()), x + x)
    assert holder(x.int(), 1.5).dtype == torch.float32
    assert holder.stats()["misses"] == 5


def test_an_error_of_the_operator_is_the_callers(client: kcache.Client) -> None:
    holder = KernelHolder("aten::mm", client=client)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            holder(torch.ones(2, 3), torch.ones(2, 3))
    assert holder.stats()["eager_operator_error"] == 2


def test_signed_zeros_are_other_values(client: kcache.Client) -> None:
    holder = KernelHolder("aten::copysign.Scalar", client=client)
    x = torch.ones(3)
    assert torch.equal(holder(x, 0.0), x)
    assert torch.equal(holder(x, -0.0), -x)
    assert holder.stats()["misses"] == 2


def test_a_dynamic_kernel_takes_other_sizes(client: kcache.Client) -> None:
    holder = KernelHolder("aten::mul.Tensor", client=client, dynamic=True, strict=True)
    for rows in (4, 7, 12):
        x, y = inputs(rows, 8, torch.float32)
        assert torch.equal(holder(x, y), x * y)
    assert holder.stats()["built"] == 1
    again = KernelHolder("aten::mul.Tensor", client=client, dynamic=True, strict=True)
    x, y = inputs(20, 30, torch.float32)
    assert torch.equal(again(x, y), x * y)
    assert (again.stats()["built"], again.stats()["loaded"]) == (0, 1)
    assert torch.equal(again(x, y[:1]), x * y[:1])  # broadcast: outside the guard
    assert again.stats()["built"] == 1


class Subclass(torch.Tensor):
    pass


EAGER: list[tuple[str, str, Callable[[], tuple[Any, ...]]]] = [
    ("requires_grad", "aten::relu", lambda: (torch.ones(3, requires_grad=True),)),
    ("subclass", "aten::relu", lambda: (torch.ones(3).as_subclass(Subclass),)),
    ("dispatch_keys", "aten::add.Tensor", lambda: (torch.ones(3, dtype=torch.complex64).conj(), 1)),
    ("device", "aten::relu", lambda: (torch.ones(3, device="meta"),)),
    ("view", "aten::view", lambda: (torch.ones(4), [2, 2])),
    ("in_place", "aten::relu_", lambda: (torch.ones(3),)),
    ("random", "aten::rand_like", lambda: (torch.ones(3),)),
    ("no_tensor", "aten::ones", lambda: ([2],)),
    ("strides", "aten::relu", lambda: (torch.ones(2, 3).t(),)),
    ("data_dependent", "aten::nonzero", lambda: (torch.ones(3),)),
    ("element_checks", "aten::index_select", lambda: (torch.ones(3), 0, torch.tensor([0, 2]))),
]


@pytest.mark.parametrize(("reason", "op", "arguments"), EAGER, ids=[reason for reason, _, _ in EAGER])
def test_unsupported_calls_run_eagerly_and_are_counted(
    reason: str, op: str, arguments: Callable[[], tuple[Any, ...]], client: kcache.Client
) -> None:
    holder = KernelHolder(op, client=client, strict=True)
    result, eager = holder(*arguments()), holder.op(*arguments())
    assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
    assert result.requires_grad == eager.requires_grad
    assert holder.stats()[f"eager_{reason}"] == 1
    assert holder.stats()["hits"] == 0


#: Arguments that the operator takes, and others of the same metadata for which it raises.
CHECKED: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("aten::index_select", (torch.ones(3), 0, torch.tensor([2])), (torch.ones(3), 0, torch.tensor([9]))),
    ("aten::gather", (torch.ones(3), 0, torch.tensor([2])), (torch.ones(3), 0, torch.tensor([9]))),
    ("aten::index.Tensor", (torch.ones(3), [torch.tensor([2])]), (torch.ones(3), [torch.tensor([9])])),
    ("aten::embedding", (torch.ones(3, 2), torch.tensor([2])), (torch.ones(3, 2), torch.tensor([9]))),
    ("aten::floor_divide", (torch.tensor([3]), torch.tensor([2])), (torch.tensor([3]), torch.tensor([0]))),
    (
        "aten::remainder.Tensor",
        (torch.tensor([3]), torch.tensor([2])),
        (torch.tensor([3]), torch.tensor([0])),
    ),
    ("aten::remainder.Scalar_Tensor", (3, torch.tensor([2])), (3, torch.tensor([0]))),
    ("aten::linalg_inv", (torch.eye(2),), (torch.zeros(2, 2),)),
    ("aten::binary_cross_entropy", (torch.ones(2), torch.ones(2)), (torch.full((2,), 2.0), torch.ones(2))),
]


@pytest.mark.parametrize(("op", "good", "bad"), CHECKED, ids=[op for op, _, _ in CHECKED])
def test_errors_that_depend_on_elements_are_those_of_the_operator(
    op: str, good: tuple[Any, ...], bad: tuple[Any, ...], client: kcache.Client
) -> None:
    holder = KernelHolder(op, client=client)
    for _ in range(2):
        assert torch.equal(holder(*good), holder.op(*good))
    with pytest.raises((RuntimeError, IndexError)) as expected:
        holder.op(*bad)
    with pytest.raises(expected.type):
        holder(*bad)
    assert holder.stats()["hits"] == 0


def test_divisions_that_cannot_raise_have_kernels(client: kcache.Client) -> None:
    whole = torch.tensor([3, -3])
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("aten::div.Tensor", (whole, whole)),
        ("aten::remainder.Scalar", (whole, 2)),
        ("aten::remainder.Tensor", (whole.float(), whole.float())),
    ]
    for op, args in calls:
        holder = KernelHolder(op, client=client, strict=True)
        assert torch.equal(holder(*args), holder.op(*args))
        assert holder.stats()["hits"] == 1, op


def test_autocast_runs_eagerly(client: kcache.Client) -> None:
    holder = KernelHolder("aten::mm", client=client)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert holder(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16
    assert holder.stats()["eager_mode"] == 1


def test_a_service_that_is_away_breaks_nothing(tmp_path: Path) -> None:
    with kcache.Client("127.0.0.1:1", cache_dir=tmp_path / "c", strict=True, timeout=5) as client:
        holder = KernelHolder("aten::relu", client=client)
        x = torch.randn(4)
        with pytest.warns(kcache.KcacheWarning, match="aten::relu runs eagerly"):
            assert torch.equal(holder(x), torch.relu(x))
        assert torch.equal(holder(x), torch.relu(x))
        assert holder.stats()["eager_unavailable"] == 2
        with pytest.raises(KcacheError):
            KernelHolder("aten::relu", client=client, strict=True)(x)


def test_threads_share_one_build(client: kcache.Client) -> None:
    holder = KernelHolder("aten::tanh", client=client, strict=True)
    x = torch.randn(16)
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(holder(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    # Calls while another thread exports run eagerly: PyTorch says of all threads that they compile.
    for result in results:
        torch.testing.assert_close(result, torch.tanh(x))
    assert holder.stats()["built"] == 1
    before = holder.stats()["hits"]
    assert 1 <= before <= 8
    torch.testing.assert_close(holder(x), torch.tanh(x))
    assert holder.stats()["hits"] == before + 1


# Registration.


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    yield
    assert unregister() == 0


def test_gradients_flow_through_a_registered_operator(client: kcache.Client) -> None:
    x, y = inputs(4, 8, torch.float32)
    with register("aten::mul.Tensor", client=client, strict=True) as registration:
        leaf = x.clone().requires_grad_()
        product = leaf * y
        product.sum().backward()
    assert product.grad_fn is not None
    assert torch.equal(product.detach(), x * y)
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, y)
    assert registration.stats()["aten::mul.Tensor"]["hits"] >= 1


def test_numbers_promote_as_numbers_in_a_registered_operator(client: kcache.Client) -> None:
    whole, half = torch.ones(2, dtype=torch.int64), torch.tensor(1.0, dtype=torch.float16)
    wanted = [(whole * 2.5), (whole * 2), (half * 2.5), (whole * torch.tensor(2.5, dtype=torch.float64))]
    with register("aten::mul.Tensor", client=client):
        got = [(whole * 2.5), (whole * 2), (half * 2.5), (whole * torch.tensor(2.5, dtype=torch.float64))]
    assert [each.dtype for each in got] == [each.dtype for each in wanted]
    assert all(torch.equal(ours, eager) for ours, eager in zip(got, wanted, strict=True))


def test_unregister_restores_the_original(client: kcache.Client) -> None:
    x = torch.ones(3)
    outer = register("aten::mul.Tensor", client=client)
    inner = register("aten::mul.Tensor", client=client)
    assert torch.equal(x * x, x)
    assert inner.holders[0].stats()["hits"] == 1
    outer.unregister()
    outer.unregister()
    assert torch.equal(x * x, x)
    assert inner.holders[0].stats()["hits"] == 2
    assert unregister("aten::mul.Tensor") == 1
    assert torch.equal(x * x, x)
    assert inner.holders[0].stats()["hits"] == 2


def test_transforms_and_compiled_functions_work_with_a_registered_operator(client: kcache.Client) -> None:
    x, y = inputs(4, 8, torch.float32)
    with register("aten::mul.Tensor", client=client):
        assert torch.equal(torch.func.vmap(torch.mul)(x, y), x * y)
        gradient = torch.func.grad(lambda a: (a * y).sum())(x)
        exported = torch.export.export(torch.nn.ReLU(), (x,))
    assert torch.equal(gradient, y)
    assert torch.equal(exported.module()(x), x)


@pytest.mark.parametrize(
    ("op", "text"), [("aten::relu_", "in_place"), ("aten::matmul", "composite"), ("aten::view", "view")]
)
def test_operators_that_cannot_be_registered(op: str, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        register(op)


def test_a_packet_registers_its_functional_overloads(client: kcache.Client) -> None:
    with register(torch.ops.aten.mul, client=client) as registration:
        names = {holder.op._name for holder in registration.holders}
        assert "aten::mul.Tensor" in names
        assert not any("out" in name for name in names)


def test_wrong_operators_and_devices() -> None:
    with pytest.raises(ArgumentError, match="no operator"):
        KernelHolder("aten::no_such_operator")
    with pytest.raises(ArgumentError, match="name one of them"):
        KernelHolder("aten::add")
    with pytest.raises(ArgumentError, match=r"'cuda'.*'cpu' only.*device='cpu'.*target='sm_90'"):
        KernelHolder("aten::relu", device="cuda")


def test_importing_kcache_imports_no_torch() -> None:
    program = """
import sys, kcache_grpc
from kcache_grpc import torch as ours
print("torch" in sys.modules)
print(ours.KernelHolder.__name__, "torch" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()) == (0, ["False", "KernelHolder", "True"]), ran.stderr
