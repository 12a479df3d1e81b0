"""Ed25519 signatures over manifests and bindings, and the server's key file."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kcache_grpc.errors import IntegrityError, PermissionDenied

MANIFEST_DOMAIN = b"kcache.manifest.v1\0"
BINDING_DOMAIN = b"kcache.binding.v1\0"
SEAL_DOMAIN = b"kcache.audit.seal.v1\0"
CHECKPOINT_DOMAIN = b"kcache.audit.checkpoint.v1\0"


@dataclass(frozen=True)
class Signed:
    """Bytes and the signature over them; ``key_id`` tells which key made it."""

    payload: bytes
    signature: bytes
    key_id: bytes


def server_id(public_key: bytes) -> str:
    """The identity that clients pin: hex SHA-256 of the raw public key."""
    return hashlib.sha256(public_key).hexdigest()


def key_id_of(public_key: bytes) -> bytes:
    """The short name of a key in signatures and in the store: 8 bytes."""
    return hashlib.sha256(public_key).digest()[:8]


class Signer:
    """The server's private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()
        self.key_id = key_id_of(self.public_key)

    @classmethod
    def generate(cls) -> Signer:
        """A new key that lives in memory only."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_file(cls, path: Path) -> Signer:
        """The key in ``path``, made at the first call (mode 0600, 32 raw bytes).

        Ten processes may start at once: the file appears whole or not at all, and the first one wins.
        Raises ``PermissionDenied`` when others may read it, ``IntegrityError`` when it is not a key.
        """
        if not path.exists():
            _create_key_file(path)
        if not path.is_file():
            raise IntegrityError(f"{path} is not a signing key: not a regular file")
        if path.stat().st_mode & 0o077:
            raise PermissionDenied(f"{path} can be read by others; run: chmod 600 {path}")
        raw = path.read_bytes()
        if len(raw) != 32:
            raise IntegrityError(f"{path} is not a signing key: {len(raw)} bytes instead of 32")
        return cls(Ed25519PrivateKey.from_private_bytes(raw))

    def sign(self, domain: bytes, payload: bytes) -> Signed:
        """Signs ``domain`` and ``payload``."""
        return Signed(payload, self._key.sign(domain + payload), self.key_id)


class Verifier:
    """A server's public key, pinned by a client."""

    def __init__(self, public_key: bytes) -> None:
        self.public_key = public_key
        self._key = Ed25519PublicKey.from_public_bytes(public_key)

    def verify(self, domain: bytes, signed: Signed) -> bytes:
        """The payload, after its signature was verified. Raises ``IntegrityError``."""
        try:
            self._key.verify(signed.signature, domain + signed.payload)
        except InvalidSignature as error:
            subject = domain.rstrip(b"\0").decode()
            raise IntegrityError(f"the signature of a {subject} is not valid under the pinned key") from error
        return signed.payload


def _create_key_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(Ed25519PrivateKey.generate().private_bytes_raw())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
