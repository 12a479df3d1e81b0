"""What a client believes: the server's key, pinned at first contact, and nothing that it did not sign."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.files import file_name, write_whole
from kcache_grpc.client.state import ServerState
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.identity import KernelIdentity, toolchain_digest
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program
from kcache_grpc.model.shapes import AUTO, EXACT, STATIC, ShapeWish
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Verifier
from kcache_grpc.model.target import Target
from kcache_grpc.model.variants import Shape, SpecSizes, exact_shape, spec_sizes, variant, wished_shape


@dataclass(frozen=True)
class Ask:
    """What a caller wants compiled."""

    program: Program
    target: Target
    options: Options
    shapes: ShapeWish = EXACT
    #: Compile again although a failure is remembered.
    retry: bool = False


class Pins:
    """Which key was seen first at which address, one file each; ``None``: remembered by this object only."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._seen: dict[str, str] = {}

    def path(self, target: str) -> Path | None:
        """Where the pin of an address is kept."""
        if self._directory is None:
            return None
        return self._directory / f"{file_name(target)}.json"

    def check(self, endpoint: Endpoint, server_id: str) -> None:
        """Pins the key of a new address. Raises ``IntegrityError`` when it is not the expected one."""
        if endpoint.server_id is not None:
            if server_id != endpoint.server_id:
                raise IntegrityError(
                    f"the server at {endpoint.target} has the identity {server_id}, not {endpoint.server_id} "
                    "as asked for (server_id, KCACHE_SERVER_ID)",
                    expected=endpoint.server_id,
                    found=server_id,
                )
            return
        pinned = self._seen.get(endpoint.target) or self._pinned(endpoint.target, server_id)
        if pinned != server_id:
            raise IntegrityError(
                self._changed(endpoint.target, pinned, server_id), expected=pinned, found=server_id
            )
        self._seen[endpoint.target] = pinned

    def _pinned(self, target: str, server_id: str) -> str:
        path = self.path(target)
        if path is None:
            return server_id
        record = {"address": target, "server_id": server_id, "pinned_at": int(time.time())}
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(record, indent=1).encode() + b"\n", replace=False)
        return self.known(target) or server_id

    def known(self, target: str) -> str | None:
        """The pinned identity of an address. Raises ``IntegrityError`` for a file that is none of ours."""
        if target in self._seen:
            return self._seen[target]
        path = self.path(target)
        if path is None:
            return None
        try:
            record: Any = json.loads(path.read_bytes())
            return str(cast("dict[str, object]", record)["server_id"])
        except OSError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{path} is not a pin; delete it to pin {target} again") from error

    def _changed(self, target: str, pinned: str, found: str) -> str:
        path = self.path(target)
        forget = f"delete {path}" if path else "make a new client"
        return (
            f"the server at {target} shows the identity {found}, but {pinned} was pinned there: it was set "
            "up anew, or somebody else answers in its place. Nothing was loaded. To trust the new identity, "
            f"{forget}, or set KCACHE_SERVER_ID={found}"
        )


class Judge:
    """Checks that what a server sent is signed by it, and is what was asked for."""

    def __init__(self, state: ServerState, namespace: str) -> None:
        self.state = state
        self._namespace = namespace
        self._verifier = Verifier(state.public_key)

    def binding(self, message: common_pb2.SignedBytes, program: Program, numerics: str) -> Binding:
        """The binding of ``program``. Raises ``IntegrityError``, ``StaleState`` for a raised epoch."""
        binding = _understood(Binding, self._payload(BINDING_DOMAIN, message))
        self._same("binding", "program digest", binding.program_digest.hex(), program.digest.hex())
        self._same("binding", "numerics", binding.numerics, numerics)
        self._same("binding", "namespace", binding.namespace, self._namespace)
        self._epoch("binding", binding.epoch)
        return binding

    def kernel(self, reply: pb.KernelResult, ask: Ask) -> tuple[Binding, Manifest]:
        """Binding and manifest of a kernel for ``ask``. Raises ``IntegrityError`` or ``StaleState``."""
        binding = self.binding(reply.binding, ask.program, ask.options.numerics)
        manifest = _understood(Manifest, self._payload(MANIFEST_DOMAIN, reply.manifest))
        self._same("manifest", "namespace", manifest.namespace, self._namespace)
        self._epoch("manifest", manifest.epoch)
        self._same("manifest", "spec digest", manifest.spec_digest.hex(), binding.spec_digest.hex())
        self._same("manifest", "key", str(manifest.key), str(binding.key))
        self._same("manifest", "target", str(manifest.target), str(ask.target))
        self._same("manifest", "options", str(manifest.options), str(ask.options))
        self._shape(manifest, spec_sizes(binding), ask.shapes)
        self._same("manifest", "inputs", _texts(manifest.inputs), manifest.arg_spec)
        constants = tuple(constant.type for constant in binding.constants)
        self._same("manifest", "constants", _texts(manifest.constants), _texts(constants))
        toolchain = toolchain_digest(manifest.toolchain)
        self._same("manifest", "toolchain digest", manifest.toolchain_digest.hex(), toolchain.hex())
        self._same("manifest", "kernel digest", manifest.kernel_digest.hex(), identity(manifest).digest.hex())
        return binding, manifest

    def _shape(self, manifest: Manifest, sizes: SpecSizes, wish: ShapeWish) -> None:
        """The kernel is for the sizes that were asked for; one that the server chose takes the program's."""
        if wish.mode == AUTO:
            found = variant(sizes, Shape(manifest.arg_spec, manifest.guard))
            if found is None or not found.takes(sizes):
                got = " if ".join(filter(None, (manifest.arg_spec, manifest.guard)))
                asked = exact_shape(sizes).arg_spec
                raise IntegrityError(f"the server sent a kernel for {got}, which does not take {asked}")
            return
        expected = exact_shape(sizes) if wish.mode == STATIC else wished_shape(sizes, wish.axes)
        self._same("manifest", "arg spec", manifest.arg_spec, expected.arg_spec)
        self._same("manifest", "guard", manifest.guard, expected.guard)

    def _payload(self, domain: bytes, message: common_pb2.SignedBytes) -> bytes:
        """What was signed. Nothing is parsed before its signature held."""
        if message.key_id.hex() != self.state.server_id[:16]:
            raise IntegrityError("the signature is of another key than the pinned one")
        return self._verifier.verify(domain, Signed(message.payload, message.signature, message.key_id))

    def _epoch(self, what: str, epoch: int) -> None:
        if epoch != self.state.epoch:
            raise StaleState(
                f"the server sent a {what} of epoch {epoch}, and says it is at {self.state.epoch}"
            )

    def _same(self, what: str, name: str, found: str, expected: str) -> None:
        if found != expected:
            raise IntegrityError(
                f"the server sent a {what} whose {name} is {found!r}; {expected!r} was asked for",
                expected=expected,
                found=found,
            )


class StaleState(IntegrityError):
    """A signed answer is of another epoch than what the server said of itself: ask both again."""


def identity(manifest: Manifest) -> KernelIdentity:
    """The six ingredients of a manifest's kernel."""
    return KernelIdentity(
        spec_digest=manifest.spec_digest,
        arg_spec=manifest.arg_spec,
        guard=manifest.guard,
        target=str(manifest.target),
        options=str(manifest.options),
        toolchain_digest=manifest.toolchain_digest,
    )


def check_bytes(data: bytes, sha256: bytes, size: int, what: str) -> bytes:
    """``data`` itself, once size and digest hold. Raises ``IntegrityError``."""
    if len(data) != size:
        raise IntegrityError(f"{what} has {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).digest() != sha256:
        raise IntegrityError(f"the bytes of {what} do not match their digest {sha256.hex()}")
    return data


def _understood(cls: Any, payload: bytes) -> Any:
    try:
        return cls.from_bytes(payload)
    except ArgumentError as error:
        raise IntegrityError(f"the server sent a value that this client does not know: {error}") from error


def _texts(tensors: tuple[object, ...]) -> str:
    return ";".join(map(str, tensors))
