"""Verifies replies: signatures by the server's key, which is pinned at first contact, and digests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.trust.server_state import ServerState
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.evidence import Witness, dynamic_shape
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Verifier
from kcache_grpc.model.sizes.modes import AUTO, EXACT, STATIC, ShapeRequirements
from kcache_grpc.model.staleness import is_current_epoch
from kcache_grpc.model.target import Target, may_serve
from kcache_grpc.model.variants import Shape, exact_shape, requested_shape, spec_sizes, variant


@dataclass(frozen=True)
class KernelRequest:
    """What a caller wants compiled."""

    program: Program
    target: Target
    options: Options
    shapes: ShapeRequirements = EXACT
    #: Compile again although a failure is remembered.
    retry: bool = False
    #: The programs whose digests ``shapes.evidence`` has.
    evidence: tuple[Program, ...] = ()
    #: What they show; ``None`` until their bindings came from the service.
    witnesses: tuple[Witness, ...] | None = None


class KernelVerifier:
    """Checks that what a server sent is signed by it, and is what was asked for."""

    def __init__(self, state: ServerState, namespace: str, pin: str = "") -> None:
        """``pin`` says where the identity is pinned, and what to do when another one answers."""
        self.state = state
        self._pin = pin
        self._namespace = namespace
        self._verifier = Verifier(state.public_key)

    def binding(self, message: common_pb2.SignedBytes, program: Program, numerics: str) -> Binding:
        """The binding of ``program``. Raises ``IntegrityError``, ``StaleState`` for a raised epoch."""
        binding = _understood(Binding, self._payload(BINDING_DOMAIN, message))
        _same("binding", "program digest", binding.program_digest.hex(), program.digest.hex())
        _same("binding", "numerics", binding.numerics, numerics)
        _same("binding", "namespace", binding.namespace, self._namespace)
        self._epoch("binding", binding.epoch)
        return binding

    def kernel(self, reply: pb.KernelResult, request: KernelRequest) -> tuple[Binding, Manifest]:
        """Binding and manifest of a kernel for ``request``. Raises ``IntegrityError`` or ``StaleState``."""
        binding = self.binding(reply.binding, request.program, request.options.numerics)
        manifest = _understood(Manifest, self._payload(MANIFEST_DOMAIN, reply.manifest))
        _same("manifest", "namespace", manifest.namespace, self._namespace)
        self._epoch("manifest", manifest.epoch)
        require_agreement(binding, manifest, request, self._target(manifest, request))
        return binding, manifest

    def allows_lower(self, request: KernelRequest) -> bool:
        """Whether a kernel for a lower target will do: as the request says, else as the namespace does."""
        allowed = request.options.compatible_targets
        return self.state.compatible_targets if allowed is None else allowed

    def _target(self, manifest: Manifest, request: KernelRequest) -> str:
        """The target that the manifest must have: that of the request, or a lower one where that will do.

        A lower one is a level that the target includes, and the code needs no feature beyond that level.
        Raises ``StaleState`` where the namespace may have come to allow it since the server was asked.
        """
        lower = may_serve(manifest.target, manifest.required_isa, request.target)
        if lower and not self.allows_lower(request) and request.options.compatible_targets is None:
            raise StaleState(
                f"the server sent a manifest whose target is {str(manifest.target)!r} instead of "
                f"{str(request.target)!r}, and says that the namespace allows no lower targets"
            )
        return str(manifest.target if lower and self.allows_lower(request) else request.target)

    def _payload(self, domain: bytes, message: common_pb2.SignedBytes) -> bytes:
        """The signed bytes. Nothing is parsed before its signature was verified."""
        if message.key_id.hex() != self.state.server_id[:16]:
            raise StaleState(
                f"the signature is of another key ({message.key_id.hex()}) than that of the pinned identity "
                f"{self.state.server_id}{self._pin}"
            )
        return self._verifier.verify(domain, Signed(message.payload, message.signature, message.key_id))

    def _epoch(self, subject: str, epoch: int) -> None:
        if not is_current_epoch(epoch, self.state.epoch):
            raise StaleState(
                f"the server sent a {subject} of epoch {epoch}, and says it is at {self.state.epoch}"
            )


class StaleState(IntegrityError):
    """A signed answer is of another epoch or key than what the server said of itself: ask both again."""


def require_agreement(
    binding: Binding, manifest: Manifest, request: KernelRequest, target: str | None = None
) -> None:
    """Check that verified binding and manifest are of one kernel, which is the one that ``request`` is for.

    ``target``: the one that the manifest must have; ``None``: that of the request.

    Raises ``IntegrityError``, ``ArgumentError`` where what was asked for has no evidence.
    """
    _same("manifest", "spec digest", manifest.spec_digest.hex(), binding.spec_digest.hex())
    _same("manifest", "key", str(manifest.key), str(binding.key))
    _same("manifest", "target", str(manifest.target), str(request.target) if target is None else target)
    _same("manifest", "options", str(manifest.options), str(request.options))
    _require_shape(manifest, binding, request)
    _same("manifest", "inputs", _texts(manifest.inputs), manifest.arg_spec)
    constants = tuple(constant.type for constant in binding.constants)
    _same("manifest", "constants", _texts(manifest.constants), _texts(constants))
    toolchain = toolchain_digest(manifest.toolchain)
    _same("manifest", "toolchain digest", manifest.toolchain_digest.hex(), toolchain.hex())
    _same("manifest", "kernel digest", manifest.kernel_digest.hex(), manifest.identity.digest.hex())


def _require_shape(manifest: Manifest, binding: Binding, request: KernelRequest) -> None:
    """The kernel is for the sizes that were asked for; one that the server chose takes the program's.

    Raises ``ArgumentError`` where what was asked for has no evidence.
    """
    sizes, requirements = spec_sizes(binding), request.shapes
    candidate = variant(sizes, Shape(manifest.arg_spec, manifest.guard))
    if requirements.mode == AUTO:
        if candidate is None or not candidate.takes(sizes):
            got = " if ".join(filter(None, (manifest.arg_spec, manifest.guard)))
            asked = exact_shape(sizes).arg_spec
            raise IntegrityError(f"the server sent a kernel for {got}, which does not take {asked}")
        return
    if requirements.mode == STATIC:
        expected = exact_shape(sizes)
    elif requirements.evidence and request.witnesses is None:
        # From disk: the evidence was there when the kernel came from the service.
        expected = requested_shape(
            sizes, requirements.axes, within=frozenset() if candidate is None else candidate.free
        )
    else:
        expected = dynamic_shape(binding, requirements, request.witnesses or ())
    _same("manifest", "arg spec", manifest.arg_spec, expected.arg_spec)
    _same("manifest", "guard", manifest.guard, expected.guard)


def check_bytes(data: bytes, sha256: bytes, size: int, subject: str) -> bytes:
    """``data``, after its size and digest were checked. Raises ``IntegrityError``."""
    if len(data) != size:
        raise IntegrityError(f"{subject} has {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).digest() != sha256:
        raise IntegrityError(f"the bytes of {subject} do not match their digest {sha256.hex()}")
    return data


def _understood(cls: Any, payload: bytes) -> Any:
    try:
        return cls.from_bytes(payload)
    except ArgumentError as error:
        raise IntegrityError(
            f"the server sent a value that this client does not know: {error}; install a kcache-grpc as new "
            "as the server",
            skew="server",
        ) from error


def _same(subject: str, name: str, actual: str, expected: str) -> None:
    if actual != expected:
        raise IntegrityError(
            f"the server sent a {subject} whose {name} is {actual!r}; {expected!r} was asked for",
            expected=expected,
            found=actual,
        )


def _texts(tensors: tuple[object, ...]) -> str:
    return ";".join(map(str, tensors))
