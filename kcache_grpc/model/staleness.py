"""Decides whether a stored kernel is stale: all the rules, and where each is applied.

A kernel is stale if its namespace has raised the epoch since it was published, if its namespace has disowned
its toolchain, or if the server's own toolchain is another one (``Staleness``). A stale kernel is not served.
Nothing else makes a kernel stale: target and options are part of the request.

Where the rules are applied:

- ``EPOCH``: every SQL statement that looks up kernels or mappings has the namespace's epoch in its condition
  (``kcache_grpc/storage/sql/kernels/hits.py`` and other modules of its directory). The service reads that
  epoch anew once a second (``kcache_grpc/service/namespaces.py``). The client checks the epoch of each signed
  reply (``kcache_grpc/client/trust/verification.py``).
- ``DISOWNED``: the service rejects requests for a disowned toolchain (``Namespaces.serving``), and the store
  publishes none of its kernels (``kcache_grpc/storage/sql/quotas.py``).
- ``TOOLCHAIN``: the toolchain is part of the kernel digest (``kcache_grpc/model/identity.py``) and of the
  condition in ``hits.py``, so that a kernel of another toolchain is not found.
- What a client holds in memory or in bundles is stale by any of the three if its (server, epoch, toolchain)
  is not in ``ServerState.provenances`` (``kcache_grpc/client/trust/server_state.py``).
- ``kcache explain`` names the rule (``kcache_grpc/service/explain/ingredient_differences.py``).
- Background verification and the export of bundles leave stale kernels out, by ``staleness``.
- Collection removes kernels of earlier epochs and of disowned toolchains: candidates are selected in SQL
  (``kcache_grpc/storage/sql/gc/candidates.py``) or by ``staleness``
  (``kcache_grpc/storage/memory/collection.py``). Kernels of other toolchains are removed only if they are
  unused, as servers of other versions may serve them from the same store.
"""

from __future__ import annotations

import enum
from collections.abc import Collection


class Staleness(enum.Enum):
    """Why a stored kernel is stale."""

    #: Its namespace has raised its epoch since it was published. So are mappings.
    EPOCH = "epoch"
    #: Its namespace has disowned the toolchain that compiled it.
    DISOWNED = "disowned"
    #: The server would compile it with another toolchain.
    TOOLCHAIN = "toolchain"


def staleness(
    epoch: int,
    toolchain: bytes,
    *,
    namespace_epoch: int,
    disowned: Collection[bytes],
    toolchains: Collection[bytes] | None = None,
) -> Staleness | None:
    """Why a kernel of an epoch and a toolchain (digest, 32 bytes) is stale; ``None`` if it is not.

    ``disowned``: the toolchains that the namespace disowned. ``toolchains``: those of the server that would
    serve the kernel; ``None`` where it may be any server. A kernel of a later epoch is not stale: the caller
    knows an old epoch of the namespace.
    """
    if not is_current_epoch(epoch, namespace_epoch):
        return Staleness.EPOCH if is_earlier_epoch(epoch, namespace_epoch) else None
    if toolchain in disowned:
        return Staleness.DISOWNED
    if toolchains is not None and toolchain not in toolchains:
        return Staleness.TOOLCHAIN
    return None


def is_earlier_epoch(epoch: int, namespace_epoch: int) -> bool:
    """Whether what was published in ``epoch`` is stale in a namespace that is in ``namespace_epoch``."""
    return epoch < namespace_epoch


def is_current_epoch(epoch: int, namespace_epoch: int) -> bool:
    """Whether what was published in ``epoch`` may be served in ``namespace_epoch``.

    What is of a later epoch may not be served either: the caller must read the namespace again first.
    """
    return epoch == namespace_epoch
