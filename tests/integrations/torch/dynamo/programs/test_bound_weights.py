"""``torch.compile`` with ``bound="weights"``: weights that are prepared once, and how they change."""

from __future__ import annotations

import copy
import gc
import importlib
import os
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.settings import settings_from
from kcache_grpc.runtime.kernel import Kernel
from kcache_grpc.torch import load as load_exported
from kcache_grpc.torch import package
from tests.integrations.torch.dynamo.compiled import compile_with

torch: Any = importlib.import_module("torch")

BOUND = {"bound": "weights"}
THREADS = 16

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Net(torch.nn.Module):
    """Convolution, batch norm, tied weights, a buffer, and a parameter that is a view of a larger tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.first = torch.nn.Linear(8 * 4, 24)
        self.second = torch.nn.Linear(24, 24)
        self.third = torch.nn.Linear(24, 24)
        self.third.weight = self.second.weight
        self.flat = torch.randn(100)
        self.view = torch.nn.Parameter(self.flat[10:34])
        self.register_buffer("scale", torch.randn(24))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x))).mean(3).flatten(1)
        y = torch.nn.functional.gelu(self.first(y)) * self.scale
        return self.third(torch.tanh(self.second(y))) + self.view


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Kernel]]:
    """The kernels with prepared values that were made, as weak references."""
    kernels: list[weakref.ref[Kernel]] = []
    prepare: Callable[..., Kernel] = Kernel.prepare

    def recorded(self: Kernel, *arguments: Any) -> Kernel:
        kernel = prepare(self, *arguments)
        kernels.append(weakref.ref(kernel))
        return kernel

    monkeypatch.setattr(Kernel, "prepare", recorded)
    return kernels


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Net().eval()


def images() -> Any:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def same(compiled: Any, model: Any, x: Any) -> None:
    """The results of eager mode; twice, as the second call reads what the first one prepared."""
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))


def multiply(model: Any) -> None:
    model.second.weight.mul_(0.5)


def load(model: Any) -> None:
    model.load_state_dict(net(3).state_dict())


def step(model: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def fused_step(model: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def replace_data(model: Any) -> None:
    model.first.weight.data = torch.randn(24, 32)


def replace_parameter(model: Any) -> None:
    model.second.weight.mul_(3)
    model.second.weight = torch.nn.Parameter(model.second.weight.data)


def convert(model: Any) -> None:
    model.to(torch.float64).to(torch.float32)
    model.first.bias.data.add_(1)  # of new memory, which nothing has read


def train(model: Any) -> None:
    with torch.enable_grad():
        model.train()(images()).sum().backward()  # new statistics of the batch norm
    model.eval()


CHANGES = (
    *(multiply, load, step, fused_step, replace_data, replace_parameter, convert, train),
    lambda model: model.flat.add_(1),
    lambda model: model.scale.copy_(torch.ones(24)),
    lambda model: model.norm.running_var.mul_(2),
    lambda model: torch._foreach_mul_([model.first.bias, model.second.bias], 2.0),
    lambda model: model.to(memory_format=torch.channels_last),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["extension", "python"])
def test_changed_weights_are_prepared_again(
    way: str, address: str, prepared: Any, monkeypatch: pytest.MonkeyPatch
):
    if way == "python":
        monkeypatch.setattr("kcache_grpc.runtime.torch.bound_call.extension", lambda: None)
    model, x = net(), images()
    compiled = compile_with(model, address, options=BOUND)
    decisions.forget()
    with torch.no_grad():
        same(compiled, model, x)
        assert len(prepared) == 1
        assert decisions.decisions()[0].bound == 13
        for change in CHANGES:
            before = len(prepared)
            change(model)
            same(compiled, model, x)
            assert len(prepared) == before + 1, change
    gc.collect()
    assert sum(kernel() is not None for kernel in prepared) <= 2  # channels_last is another graph


def test_weights_that_die_free_what_was_prepared(address: str, prepared: Any):
    with torch.no_grad():
        for seed in range(3):  # one graph, as Dynamo does not compare modules
            model, x = net(seed), images()
            same(compile_with(model, address, options=BOUND), model, x)
            del model
            gc.collect()
            assert all(kernel() is None for kernel in prepared)
    assert len(prepared) == 3


def test_layers_that_share_a_graph_have_their_own_weights(address: str, prepared: Any):
    torch.manual_seed(0)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.gelu(self.linear(x)) * 2

    layers = [Layer().eval() for _ in range(3)]
    model, eager = torch.nn.Sequential(*layers), torch.nn.Sequential(*copy.deepcopy(layers))
    for layer in layers:
        layer.compile(backend="kcache", options={"address": address, "strict": True, **BOUND})
    x = torch.randn(8, 16)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(x), eager(x))
        assert len(prepared) == 3
        for each in (model, eager):
            each[1].linear.weight.mul_(2)
        torch.testing.assert_close(model(x), eager(x))
    assert len(prepared) == 4


@pytest.mark.parametrize("warm", [False, True], ids=["traced", "warm"])
def test_a_record_has_the_bound_inputs(warm: bool, address: str, prepared: Any):
    model, x = net(), images()
    with torch.no_grad():
        if warm:
            compile_with(model, address, options=BOUND)(x)
            torch._dynamo.reset()
        decisions.forget()
        same(compile_with(model, address, options={**BOUND, "rederive": 0.0}), model, x)
    [decision] = decisions.decisions()
    assert decision.bound == 13
    assert not warm or decision.origin == "warm"
    assert len(prepared) == 1 + warm


def test_each_call_reads_one_binding(address: str):
    """16 threads call while the weight changes: each result is that of one weight in both products."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(16, 16))

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Any) -> Any:
            return torch.relu(x @ self.weight) @ self.weight.t()

    model, x = Twice(), torch.randn(8, 16)
    weights = [torch.randn(16, 16) for _ in range(6)]
    compiled = compile_with(model, address, options=BOUND)

    def call(_: int) -> list[bytes]:
        with torch.no_grad():
            return [compiled(x).numpy().tobytes() for _ in range(60)]

    def change(_: int) -> list[bytes]:
        for _ in range(10):
            for each in weights:
                weight.data = each
        return []

    with torch.no_grad():
        expected = set[bytes]()
        for each in weights:
            weight.data = each
            expected.add(compiled(x).numpy().tobytes())
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(change if number == 5 else call, number) for number in range(THREADS)]
        results = {result for job in jobs for result in job.result()}
    assert results <= expected


def test_inference_and_training_take_turns(address: str):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    eager, x = copy.deepcopy(model), torch.randn(5, 8)
    compiled = compile_with(model, address, options=BOUND)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, eager)]
    decisions.forget()
    for _ in range(3):
        for run, optimizer in zip((compiled, eager), optimizers, strict=True):
            optimizer.zero_grad()
            run(x).square().sum().backward()
            optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), eager(x))
    assert {each.kind: each.bound for each in decisions.decisions()} == {
        "forward": 0,
        "backward": 0,
        "inference": 4,
    }


def test_buffers_that_the_graph_writes_are_not_bound(address: str):
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.zeros(8))
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x: Any) -> Any:
            self.sum += (x * self.scale).sum(0)
            return torch.tanh(self.sum * x)

    model, eager = Counts(), Counts()
    compiled = compile_with(model, address, options=BOUND)
    decisions.forget()
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 8)
            torch.testing.assert_close(compiled(x), eager(x))
            torch.testing.assert_close(model.sum, eager.sum)
    assert decisions.decisions()[0].bound == 1


def test_dynamic_sizes(address: str, prepared: Any):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 8)).eval()
    compiled = compile_with(model, address, options=BOUND, dynamic=True)
    decisions.forget()
    with torch.no_grad():
        for rows in (2, 3, 17, 64, 2):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(compiled(x), model(x))
        assert len(prepared) == 1
        model[0].weight.mul_(2)
        same(compiled, model, torch.randn(5, 16))
    [decision] = decisions.decisions()
    assert (decision.bound, len(prepared)) == (4, 2)


def test_inference_tensors_are_read_at_each_call(address: str):
    with torch.inference_mode():
        model, x = net(), images()
        compiled = compile_with(model, address, options=BOUND)
        decisions.forget()
        same(compiled, model, x)
        model.second.weight.mul_(2)
        same(compiled, model, x)
    assert decisions.decisions()[0].bound == 0


def test_weights_under_inference_mode(address: str, prepared: Any):
    model, x = net(), images()
    compiled = compile_with(model, address, options=BOUND)
    with torch.inference_mode():
        same(compiled, model, x)
        model.second.weight.mul_(2)
        same(compiled, model, x)
    assert len(prepared) == 2


def test_autocast(address: str):
    model, x = net(), images()
    compiled = compile_with(model, address, options=BOUND)
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):  # which remembers what it converted
            torch.testing.assert_close(compiled(x), model(x), rtol=5e-2, atol=5e-2)
            model.second.weight.mul_(2)


def test_exported_programs_and_packages(client: Any, prepared: Any, tmp_path: Path):
    model, x = net(), images()
    exported = torch.export.export(model, (x,))
    plain = load_exported(exported, client=client, strict=True)
    bound = load_exported(exported, client=client, strict=True, bound="weights")
    assert decisions.decisions()[-1].bound == 13
    report = package(exported, tmp_path / "net.kcpkg", client=client, bound="weights")
    packaged = load_exported(tmp_path / "net.kcpkg", trust=report.signer, strict=True)
    with torch.no_grad():
        same(bound, plain, x)
        same(packaged, plain, x)
        assert len(prepared) == 2
        bound.get_parameter("second.weight").mul_(2)
        packaged.load_state_dict(bound.state_dict())
        same(bound, plain, x)
        same(packaged, plain, x)
    assert len(prepared) == 4


def test_frozen_weights_are_prepared_once(address: str, client: Any, prepared: Any, tmp_path: Path):
    model, x = net(), images()
    expected = model(x).detach()
    guards = torch.compiler.skip_guard_on_all_nn_modules_unsafe
    options = {"bound": "frozen", "guard_filter_fn": guards}
    report = package(torch.export.export(model, (x,)), tmp_path / "net.kcpkg", client=client, bound="weights")
    packaged = load_exported(tmp_path / "net.kcpkg", trust=report.signer, strict=True, bound="frozen")
    compiled = compile_with(model, address, options=options)
    with torch.no_grad():
        for module, weight in ((compiled, model.second.weight), (packaged, packaged.second.weight)):
            torch.testing.assert_close(module(x), expected)
            weight.mul_(2)
            torch.testing.assert_close(module(x), expected)
    assert len(prepared) == 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")
def test_weights_change_on_both_sides_of_a_fork(address: str):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # GCC's OpenMP has no threads after a fork
    try:
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16)).eval()
        x = torch.randn(4, 16)
        compiled = compile_with(model, address, options=BOUND)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
            child = os.fork()
            if not child:
                status = 1
                try:
                    torch.testing.assert_close(compiled(x), model(x))
                    model[0].weight.mul_(2)
                    torch.testing.assert_close(compiled(x), model(x))
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            model[2].bias.add_(1)
            torch.testing.assert_close(compiled(x), model(x))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(threads)


def test_another_value_of_the_option_is_rejected():
    with pytest.raises(ArgumentError, match="bound is 'all'; use 'weights', 'frozen' or None"):
        settings_from(None, {"bound": "all"})
