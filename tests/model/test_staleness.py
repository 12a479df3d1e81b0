"""Stale kernels: each rule alone, which one is given where several apply, and what is not stale."""

from __future__ import annotations

import pytest

from kcache_grpc.model.staleness import Staleness, is_current_epoch, is_earlier_epoch, staleness

OURS, OTHER = b"o" * 32, b"x" * 32


@pytest.mark.parametrize(
    ("epoch", "toolchain", "disowned", "reason"),
    [
        (2, OURS, (), None),
        (1, OURS, (), Staleness.EPOCH),
        (2, OURS, (OURS,), Staleness.DISOWNED),
        (2, OTHER, (), Staleness.TOOLCHAIN),
        (1, OURS, (OURS,), Staleness.EPOCH),
        (2, OTHER, (OTHER,), Staleness.DISOWNED),
        (2, OURS, (OTHER,), None),
    ],
)
def test_rules(epoch: int, toolchain: bytes, disowned: tuple[bytes, ...], reason: Staleness | None) -> None:
    assert staleness(epoch, toolchain, namespace_epoch=2, disowned=disowned, toolchains={OURS}) is reason


def test_servers_of_other_versions_may_serve_what_is_of_another_toolchain() -> None:
    assert staleness(1, OTHER, namespace_epoch=1, disowned=(), toolchains=None) is None


def test_a_later_epoch_is_neither_stale_nor_served() -> None:
    assert staleness(3, OURS, namespace_epoch=2, disowned=(OURS,), toolchains=()) is None
    assert not is_earlier_epoch(3, 2)
    assert not is_current_epoch(3, 2)
