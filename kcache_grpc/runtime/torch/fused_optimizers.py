"""Notices steps of optimizers with ``fused=True``, which update parameters without counting it.

Other optimizers update through operators that increment the version counter of each tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

Observer = Callable[[frozenset[int]], None]

_lock = threading.Lock()
_observers: list[Observer] = []


def observe_fused_steps(observer: Observer) -> None:
    """From now on call ``observer`` after each fused step of an optimizer, with the addresses of the storages
    that it may have updated. An observer is kept until the process ends; adding it again has no effect.
    """
    with _lock:
        if not _observers:
            optimizer: Any = import_module("torch.optim.optimizer")
            optimizer.register_optimizer_step_post_hook(_after_step)
        if observer not in _observers:
            _observers.append(observer)


def _after_step(optimizer: Any, _arguments: object, _keywords: object) -> None:
    torch: Any = import_module("torch")
    if torch.compiler.is_compiling():  # compiled updates are counted
        return
    storages = frozenset(_updated(optimizer.param_groups))
    if storages:
        for observer in _observers:
            observer(storages)


def _updated(groups: Iterable[dict[str, Any]]) -> Iterable[int]:
    for group in groups:
        if group.get("fused"):
            for parameter in group["params"]:
                if parameter.device.type == "cpu":
                    yield parameter.untyped_storage().data_ptr()
