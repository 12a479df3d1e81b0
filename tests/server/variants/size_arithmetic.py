"""Random functions that use their sizes in arithmetic, and what may be asked for their static exports.

A case is a request for one of them: which exports, ``dynamic`` and ``symbols``; and calls at three sizes.
``python -m tests.server.variants.size_arithmetic FIRST FUNCTIONS`` checks many, and prints what came of them.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import kcache_grpc as kcache
from tests.server.harness.running import config_in, running

#: A size expression or a function of arrays, of the framework's module, rows and columns.
Number = Callable[[int, int], float]
Step = Callable[[Any, Any, Number], Any]

#: Numbers that are computed from one size in a way that tells sizes apart, or from two.
_NUMBERS: tuple[Number, ...] = (
    lambda n, m: n,
    lambda n, m: m,
    lambda n, m: 1 / n,
    lambda n, m: 2 / m,
    lambda n, m: n**0.5,
    lambda n, m: 1 / m**0.5,
    lambda n, m: n - 2,
    lambda n, m: n * n,
    lambda n, m: n + m,
    lambda n, m: n - m,
    lambda n, m: m - n,
    lambda n, m: n * m,
    lambda n, m: n / m,
    lambda n, m: (m / n) ** 0.5,
    lambda n, m: 1 / (n * m),
)
#: Constants, some of them equal to what a size gives.
_CONSTANTS = (0.25, 0.5, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 0.125, 1 / 3)

_STEPS: dict[str, Step] = {
    "scale": lambda f, x, c: x * c(*x.shape),
    "divide": lambda f, x, c: x / (c(*x.shape) + 0.5),
    "shift": lambda f, x, c: x + c(*x.shape),
    "tanh": lambda f, x, c: f.tanh(x),
    "exp": lambda f, x, c: f.exp(f.tanh(x)),
    "rows": lambda f, x, c: x - f.mean(x, 0, keepdims=True),
    "columns": lambda f, x, c: x / (f.sum(x * x, 1, keepdims=True) * c(*x.shape) + 1.0),
    "sum": lambda f, x, c: x + f.sum(x, 1, keepdims=True) / (c(*x.shape) + 20.5),
    "ramp": lambda f, x, c: x * f.reshape(f.arange(x.shape[0]), (-1, 1)) * c(*x.shape),
    "steps": lambda f, x, c: x + f.arange(x.shape[1]) / x.shape[1],
    "product": lambda f, x, c: f.matmul(x, f.transpose(x, 0, 1)) @ x * c(*x.shape),
}


class Torch:
    """What ``_STEPS`` use, of PyTorch."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def mean(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.mean(axis, keepdim=keepdims)

    def sum(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.sum(axis, keepdim=keepdims)

    def arange(self, size: int) -> Any:
        return self._torch.arange(size, dtype=self._torch.float32)


class Jax:
    """What ``_STEPS`` use, of JAX; with NumPy inside, so that constants are computed when it traces."""

    def __init__(self) -> None:
        import jax.numpy as jnp

        self._jnp: Any = jnp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jnp, name)

    def transpose(self, x: Any, first: int, second: int) -> Any:
        return self._jnp.swapaxes(x, first, second)

    def arange(self, size: int) -> Any:
        return self._jnp.arange(size, dtype=np.float32)


class Numpy:
    """What ``_STEPS`` use, of NumPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def transpose(self, x: Any, first: int, second: int) -> Any:
        return np.swapaxes(x, first, second)

    def arange(self, size: int) -> Any:
        return np.arange(size, dtype=np.float64)


@dataclass
class Function:
    """One to four steps, each with a number."""

    steps: list[tuple[str, Number]]

    def __call__(self, framework: Any, x: Any) -> Any:
        for name, number in self.steps:
            x = _STEPS[name](framework, x, number)
        return x

    def jax(self, sizes: tuple[int, int]) -> Any:
        import jax

        framework = Jax()
        return jax.export.export(jax.jit(lambda x: self(framework, x)))(np.ones(sizes, np.float32))

    def torch(self, sizes: tuple[int, int]) -> Any:
        import torch

        function = self

        class Module(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return function(Torch(), x)

        return torch.export.export(Module(), (torch.ones(sizes),))


def function_of(rng: random.Random) -> Function:
    def number() -> Number:
        if rng.random() < 0.35:
            constant = rng.choice(_CONSTANTS)
            return lambda n, m: constant
        return rng.choice(_NUMBERS)

    return Function([(rng.choice(list(_STEPS)), number()) for _ in range(rng.choice((1, 1, 2, 3, 4)))])


def sizes_of(rng: random.Random) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Of two exports, and of a call: in one axis or in both."""
    while True:
        lengths = rng.randint(2, 9), rng.randint(2, 9)
        two = (
            lengths[0] if rng.random() < 0.25 else rng.randint(2, 9),
            lengths[1] if rng.random() < 0.4 else rng.randint(2, 9),
        )
        call = (
            rng.choice((lengths[0], two[0], rng.randint(2, 12))),
            rng.choice((lengths[1], two[1], rng.randint(2, 12))),
        )
        if lengths != two and call not in (lengths, two):
            return lengths, two, call


def wishes(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Five to nine, each with any mode and any symbols."""
    for _ in range(rng.randint(5, 9)):
        requirements: dict[str, Any] = {"dynamic": rng.choice((True, True, "auto", "auto", False))}
        if requirements["dynamic"] is not False and rng.random() < 0.5:
            axes = rng.choice(([(0, 0)], [(0, 1)], [(0, 0), (0, 1)]))
            requirements["symbols"] = (
                axes if rng.random() < 0.5 else {at: kcache.Dim(min=1, max=64) for at in axes}
            )
        yield requirements


@dataclass
class Checker:
    """Checks functions against one service; their programs share its keys."""

    address: str
    counts: Counter[str] = field(default_factory=Counter[str])

    def check(self, seed: int, framework: str) -> None:
        """Whatever is asked for one function and called: the right numbers, or ``ArgumentError``."""
        rng = random.Random(seed)
        function, sizes = function_of(rng), sizes_of(rng)
        programs = [getattr(function, framework)(each) for each in sizes[:2]]
        with kcache.Client(self.address, cache_dir=_no_cache(), strict=True) as client:
            for requirements in wishes(rng):
                order = rng.choice(([0], [1], [0, 1], [1, 0]))
                asked = programs[order[0]] if len(order) == 1 else [programs[index] for index in order]
                self.counts["cases"] += 1
                try:
                    kernel = client.compile(asked, **requirements)
                except kcache.ArgumentError:
                    self.counts["rejected requests"] += 1
                    continue
                self.called(
                    kernel, function, sizes, order[0], f"seed {seed} ({framework}): {requirements} {order}"
                )

    def called(
        self, kernel: Any, function: Function, sizes: tuple[tuple[int, int], ...], own: int, where: str
    ) -> None:
        for index, each in enumerate(sizes):
            x = np.random.default_rng(each).uniform(0.5, 1.5, each).astype(np.float32)
            try:
                (result,) = kernel(x)
            except kcache.ArgumentError:
                assert index != own, f"{where}: rejects the sizes {each} of its program"
                self.counts["rejected calls"] += 1
                continue
            wanted = function(Numpy(), x.astype(np.float64))
            close = np.allclose(result, wanted, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(wanted).max())))
            steps = [name for name, _ in function.steps]
            assert close, f"{where}: wrong numbers at {each}, exports at {sizes[:2]}, steps {steps}"
            self.counts["calls" if index == own else "calls at other sizes"] += 1


def _no_cache() -> Path:
    return Path(tempfile.mkdtemp(prefix="kcache-sizes-"))


@contextmanager
def checker(folder: Path) -> Iterator[Checker]:
    with running(config_in(folder)) as server:
        yield Checker(server.address)


def main() -> None:
    """Prints counts, and what fails; exit status 1 where something did."""
    warnings.simplefilter("ignore")
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failures = 0
    with tempfile.TemporaryDirectory() as folder, checker(Path(folder)) as checks:
        for seed in range(first, first + count):
            try:
                checks.check(seed, "torch" if seed % 40 == 0 else "jax")
            except AssertionError as error:
                failures += 1
                print(error, flush=True)
            checks.counts["functions"] += 1
            if seed % 50 == 49:
                print(seed, dict(checks.counts), flush=True)
    print(f"{failures} failures:", dict(checks.counts))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
