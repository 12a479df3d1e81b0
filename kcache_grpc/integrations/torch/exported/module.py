"""The callable module of an exported program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.exported.graph import Graph, aliases
from kcache_grpc.integrations.torch.exported.inputs import Inputs
from kcache_grpc.integrations.torch.exported.state import Convention, Slot, StateTensor, register, slot_of
from kcache_grpc.runtime.updated_arguments import addresses, not_writable, overlap

torch: Any = import_module("torch")

#: Combinations of dtypes, devices and shapes of inputs that were checked and are remembered.
_MOST_ACCEPTED = 256


class Feed(NamedTuple):
    """An input of the program: a tensor of the module by name, or a leaf of the arguments by number."""

    name: str
    leaf: int | None


class Expected(NamedTuple):
    """What a tensor of the module must be like."""

    dtype: Any
    device: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Interface:
    """How an exported program is called. ``feeds``: all of its inputs; ``expected``: of those by name."""

    convention: Convention
    inputs: Inputs
    feeds: tuple[Feed, ...]
    expected: Mapping[str, Expected]


class Runner:
    """Runs a graph with the tensors of a module and a call's arguments. Safe from many threads."""

    def __init__(
        self,
        interface: Interface,
        graph: Graph,
        run: Callable[[list[Any]], Sequence[Any]],
        *,
        frozen: bool = False,
    ) -> None:
        self._interface = interface
        self._graph = graph
        self._run = run
        self._aliases = aliases(graph)
        self._feeds = [interface.feeds[position] for position in graph.feeds]
        self._targets = [interface.feeds[position] for position in graph.updates]
        #: Names of the module's tensors that a call reads or writes, in order.
        self.names = tuple(
            dict.fromkeys(feed.name for feed in (*self._feeds, *self._targets) if feed.leaf is None)
        )
        numbers = {name: number for number, name in enumerate(self.names)}
        self._sources = [
            (True, numbers[feed.name]) if feed.leaf is None else (False, feed.leaf)
            for feed in (*self._feeds, *self._targets)
        ]
        expected = [interface.expected[name] for name in self.names]
        self._expected = tuple([list(column) for column in zip(*expected, strict=True)] or ([], [], []))
        self._accepted: set[Any] = set()
        #: Whether the tensors of the module at the first call are those of all calls.
        self.frozen = frozen and not self._targets

    def __deepcopy__(self, memo: Any) -> Runner:
        """The same: it holds no tensors."""
        return self

    def __call__(self, state: Sequence[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        convention = self._interface.convention
        leaves = convention.flatten(args, kwargs)
        self._check(leaves)
        if torch.is_grad_enabled():
            self._reject_gradients(state, leaves)
        tensors = [state[number] if is_state else leaves[number] for is_state, number in self._sources]
        count = len(self._targets)
        if not count:
            return convention.unflatten(self._run(tensors))
        targets = tensors[-count:]
        del tensors[-count:]
        self._require_writable(targets, leaves)
        outputs = self._run(tensors)
        _write(targets, outputs[:count])
        results = list(outputs[count:])
        for position, number in self._aliases.items():
            results[position] = targets[number]
        return convention.unflatten(results)

    def _check(self, leaves: Sequence[Any]) -> None:
        key: tuple[Any, ...] = tuple(
            [
                (leaf.shape, leaf.dtype, leaf.device)
                if isinstance(leaf, torch.Tensor)
                else (type(leaf), leaf if leaf.__hash__ else None)
                for leaf in leaves
            ]
        )
        if key in self._accepted:
            return
        self._interface.inputs.check(leaves)
        if len(self._accepted) >= _MOST_ACCEPTED:
            self._accepted = set()
        self._accepted.add(key)

    def check_state(self, state: Sequence[Any]) -> None:
        """Raises ``ArgumentError`` for tensors of the module that the program was not exported for."""
        dtypes, devices, shapes = self._expected
        if (
            [tensor.dtype for tensor in state] == dtypes
            and [tensor.device for tensor in state] == devices
            and [tensor.shape for tensor in state] == shapes
        ):
            return
        for name, tensor, expected in zip(
            self.names, state, map(Expected, dtypes, devices, shapes), strict=True
        ):
            actual = Expected(tensor.dtype, tensor.device, tuple(tensor.shape))
            if actual != Expected(expected.dtype, expected.device, tuple(expected.shape)):
                raise ArgumentError(
                    f"{name} is of {actual.dtype}, {actual.shape} on {actual.device}, and the program was "
                    f"exported for {expected.dtype}, {tuple(expected.shape)} on {expected.device}: convert "
                    "the module before the export",
                    argument=name,
                )

    def _reject_gradients(self, state: Sequence[Any], leaves: Sequence[Any]) -> None:
        trained = [name for name, tensor in zip(self.names, state, strict=True) if tensor.requires_grad]
        if trained:
            others = f" and {len(trained) - 1} more" if len(trained) > 1 else ""
            raise ArgumentError(
                f"weight {trained[0]}{others} of the program requires grad and grad mode is on, and exported "
                "programs have no gradients: call under torch.no_grad(), or freeze the module "
                "(module.requires_grad_(False)); train with the module itself",
                argument=trained[0],
            )
        for spec, leaf in zip(self._interface.inputs.inputs, leaves, strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                raise ArgumentError(
                    f"input {spec.name} requires grad and grad mode is on, and exported programs have no "
                    "gradients: call under torch.no_grad(), or pass x.detach()",
                    argument=spec.name,
                )

    def _require_writable(self, targets: Sequence[Any], leaves: Sequence[Any]) -> None:
        for feed, target in zip(self._targets, targets, strict=True):
            reason = not_writable(target)
            if not reason and feed.leaf is not None:
                ranges = [
                    addresses(leaf)
                    for number, leaf in enumerate(leaves)
                    if number != feed.leaf and isinstance(leaf, torch.Tensor)
                ]
                if any(overlap(addresses(target), other) for other in ranges):
                    reason = "it shares memory with another argument: pass a copy"
            if reason:
                name = feed.name
                raise ArgumentError(f"{name} is updated in place by the program, and {reason}", argument=name)


def _write(targets: Sequence[Any], values: Sequence[Any]) -> None:
    """Copy new values to what they update; one that is the old value of another target is copied first."""
    if len(targets) > 1:
        storages = {target.untyped_storage().data_ptr() for target in targets}
        values = [
            value.clone() if value.untyped_storage().data_ptr() in storages else value for value in values
        ]
    with torch.no_grad():
        for target, value in zip(targets, values, strict=True):
            if target is not value:
                target.copy_(value)


class LoadedModule(torch.nn.Module):
    """An exported program as a module: called as the exported module, without gradients.

    Parameters and buffers have their names, and calls read them anew, so that ``load_state_dict`` counts,
    unless they are frozen. It is for inference: ``train()`` raises, as the graph is fixed.
    """

    def __init__(self, state: Sequence[StateTensor], runner: Runner) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        register(self, state)
        self._kcache_runner = runner
        self._kcache_slots: list[Slot] = [slot_of(self, name) for name in runner.names]
        #: The tensors of all calls, if they are frozen and were checked.
        self._kcache_state: list[Any] | None = None
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the exported module returns.

        Raises ``ArgumentError`` for arguments that the program was not exported for, and where a parameter or
        an argument requires grad in grad mode.
        """
        state = self._kcache_state
        if state is None:
            state = [table[name] for table, name in self._kcache_slots]
            self._kcache_runner.check_state(state)
            if self._kcache_runner.frozen:
                self._kcache_state = state
        return self._kcache_runner(state, args, kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy is frozen at its own first call."""
        super().__setstate__(state)  # pyright: ignore[reportUnknownMemberType]
        self._kcache_state = None

    def train(self, mode: bool = True) -> LoadedModule:
        """Only ``train(False)``, as ``eval()`` calls it."""
        if mode:
            raise ArgumentError("an exported program is fixed; export the module in training mode instead")
        return self
