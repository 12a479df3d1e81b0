"""What tests of preloaded and imported bundles share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kcache_grpc.model.signing import server_id
from tests.client.fake import FakeService

Bundles = Callable[..., Path]


def trusted(service: FakeService) -> str:
    return server_id(service.signer.public_key)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
