"""The programs that a client has used: for an export without names, and as evidence in automatic mode.

The service takes the programs of a namespace for evidence when it chooses a kernel. Those may be programs
of other functions, which are the same but for their sizes. A kernel of automatic mode therefore takes other
sizes only as far as programs of the same client show it; the kernel asks again at each call with new sizes.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kcache_grpc.client.cache.memory import Lru
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.model.evidence import Witness, evident, witness
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.variants import Shape, spec_sizes, variant
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.bound_kernel import BoundArguments

#: Specs, and programs of one, that are remembered.
_SPECS, _PROGRAMS = 4096, 64
#: Bound values of more bytes are not compared: programs that have them show nothing of each other.
_COMPARED_BYTES = 64 << 20
_unequal = itertools.count()
#: Programs and kernels that are exported without being named, each.
MOST_USED = 10_000


class SeenPrograms:
    """What the programs of one client show. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Lru[bytes, tuple[Witness, ...]] = Lru(_SPECS)

    def add(self, programs: Iterable[Witness]) -> None:
        """The client asked for these programs."""
        with self._lock:
            for program in programs:
                known = self._seen.get(program.spec_digest) or ()
                if program not in known:
                    self._seen.put(program.spec_digest, (*known, program)[-_PROGRAMS:])

    def named(self, spec_digest: bytes, program_digests: Sequence[bytes]) -> tuple[Witness, ...]:
        """Those of a spec that have these digests and no arguments of their own."""
        seen = self._seen.get(spec_digest) or ()
        return tuple(each for each in seen if each.program_digest in program_digests)

    def pinned(self, own: Witness, manifest: Manifest, binding: Binding) -> Mapping[str, int]:
        """The symbols of a kernel that nothing shows to change, with their sizes in the program."""
        spec = spec_sizes(binding)
        shape = variant(spec, Shape(manifest.arg_spec, manifest.guard))
        if shape is None or not shape.free & spec.known.keys():
            return {}
        shown = evident(own, self._seen.get(own.spec_digest) or ())
        return {name: size for name, size in spec.known.items() if name in shape.free - shown}

    def after_fork(self) -> None:
        """See ``Lru.after_fork``."""
        self._lock = threading.Lock()
        self._seen.after_fork()


def witness_of(binding: Binding, arguments: BoundArguments | None) -> Witness:
    """What a program shows; the arguments that it brings are constants, too."""
    own = witness(binding)
    if arguments is None or not arguments.values:
        return own
    return replace(own, constants=(*own.constants, _digest(arguments)))


def _digest(arguments: BoundArguments) -> str:
    """The same for equal values only."""
    hasher = hashlib.sha256()
    total = 0
    for value in arguments.readable:
        array: Any = value
        content: Any = array.detach().cpu().contiguous().flatten() if is_torch(array) else array
        total += content.numel() * content.element_size() if is_torch(array) else content.nbytes
        if total > _COMPARED_BYTES:
            return f"unequal {next(_unequal)}"
        hasher.update(f"{array.dtype} {tuple(array.shape)};".encode())
        hasher.update(_memory(content))
    return hasher.hexdigest()


def _memory(content: Any) -> bytes:
    if is_torch(content):
        import torch

        return bytes(content.view(torch.uint8).numpy())
    return np.ascontiguousarray(content).tobytes()


class Used:
    """Programs and kernels that a client has used, by digest."""

    def __init__(self) -> None:
        self.programs: dict[bytes, None] = {}
        self.kernels: dict[bytes, None] = {}

    def add(self, request: KernelRequest, kernel: Kernel) -> None:
        """A kernel was handed out. Programs that were its evidence belong to it."""
        self.kernels[kernel.manifest.kernel_digest] = None
        for digest in (request.program.digest, *request.shapes.evidence):
            self.programs[digest] = None
