"""Kernels for lower targets: what a client trusts, and for how long it keeps them."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc import Options
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc.client.cache import memory
from kcache_grpc.client.config import from_environment
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.target import CpuTarget
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, Rejection, serving

pytestmark = pytest.mark.issue(number=20, point=7)

ASKED = "x86-64-v4"
Change = Callable[[Manifest], Manifest]


def made_for(target: str, *required_isa: str) -> Change:
    """The manifest of an honest compile for another target."""

    def change(manifest: Manifest) -> Manifest:
        other = replace(manifest, target=CpuTarget(target), required_isa=required_isa)
        return replace(other, kernel_digest=other.identity.digest)

    return change


def allow(service: FakeService) -> None:
    """The namespace lets lower targets answer."""

    def bend(reply: Any) -> Any:
        reply.target_match = common_pb2.TARGET_MATCH_COMPATIBLE
        return reply

    service.bend["GetCapabilities"] = bend


def test_a_lower_target_is_taken_where_the_caller_allows_it(
    client: kcache.Client, service: FakeService
) -> None:
    service.change_manifest = made_for("x86-64-v2", "sse4.2")
    kernel = client.compile(PROGRAM, target=ASKED, options=Options(compatible_targets=True))
    assert str(kernel.manifest.target) == "x86-64-v2"


@pytest.mark.parametrize("allowed", [False, None])
def test_a_lower_target_is_rejected_where_nobody_allows_it(
    client: kcache.Client, service: FakeService, allowed: bool | None
) -> None:
    service.change_manifest = made_for("x86-64-v2")
    with pytest.raises(kcache.IntegrityError, match="target is 'x86-64-v2'"):
        client.compile(PROGRAM, target=ASKED, options=Options(compatible_targets=allowed))


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ("x86-64-v3", made_for("x86-64-v4")),
        ("x86-64-v4", made_for("aarch64")),
        ("x86-64-v4", made_for("znver2")),
        ("x86-64-v4", made_for("x86-64-v2", "avx2")),
        ("x86-64-v4", made_for("x86-64-v3", "avx512f")),
        ("aarch64", made_for("aarch64-sve")),
        ("sm_90", made_for("x86-64-v2")),
    ],
)
def test_what_the_target_does_not_include_is_rejected_whoever_allows_it(
    client: kcache.Client, service: FakeService, asked: str, change: Change
) -> None:
    allow(service)
    service.change_manifest = change
    with pytest.raises(kcache.IntegrityError, match=f"'{asked}' was asked for"):
        client.compile(PROGRAM, target=asked, options=Options(compatible_targets=True))


@pytest.mark.parametrize("field", ["options", "toolchain_digest"])
def test_only_the_target_may_differ(client: kcache.Client, service: FakeService, field: str) -> None:
    other: dict[str, Any] = {"options": Options(opt_level=1), "toolchain_digest": bytes(32)}

    def change(manifest: Manifest) -> Manifest:
        changed = replace(made_for("x86-64-v2")(manifest), **{field: other[field]})
        return replace(changed, kernel_digest=changed.identity.digest)

    service.change_manifest = change
    with pytest.raises(kcache.IntegrityError):
        client.compile(PROGRAM, target=ASKED, options=Options(compatible_targets=True))


def test_the_namespace_allows_it_for_those_who_leave_it_open(
    client: kcache.Client, service: FakeService
) -> None:
    allow(service)
    service.change_manifest = made_for("x86-64-v3")
    assert str(client.compile(PROGRAM, target=ASKED).manifest.target) == "x86-64-v3"
    with pytest.raises(kcache.IntegrityError):
        client.compile(PROGRAM, target=ASKED, options=Options(compatible_targets=False))


def test_a_namespace_that_has_just_come_to_allow_it_is_asked_again(
    client: kcache.Client, service: FakeService
) -> None:
    client.compile(PROGRAM, target=ASKED)
    allow(service)
    service.change_manifest = made_for("x86-64-v3")
    assert str(client.compile(PROGRAM + "\n", target=ASKED).manifest.target) == "x86-64-v3"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (None, common_pb2.TARGET_MATCH_NAMESPACE),
        (True, common_pb2.TARGET_MATCH_COMPATIBLE),
        (False, common_pb2.TARGET_MATCH_EXACT),
    ],
)
def test_the_setting_of_a_client_holds_where_options_say_nothing(
    new_client: NewClient, setting: bool | None, said: int
) -> None:
    asked: list[int] = []

    class Recording(FakeService):
        def GetKernels(self, request: Any, context: Any) -> Iterator[Any]:
            asked.append(request.target_match)
            return super().GetKernels(request, context)

    with serving(Recording()) as server:
        client = new_client(server.address, compatible_targets=setting)
        client.compile(PROGRAM, target=ASKED)
        client.compile(PROGRAM, target=ASKED, options=Options(compatible_targets=True, opt_level=1))
    assert asked == [said, common_pb2.TARGET_MATCH_COMPATIBLE]


def test_the_environment_sets_it() -> None:
    variable = "KCACHE_COMPATIBLE_TARGETS"
    assert from_environment(environment={}).compatible_targets is None
    assert from_environment(environment={variable: "yes"}).compatible_targets is True
    assert from_environment(environment={variable: "0"}).compatible_targets is False
    assert from_environment(compatible_targets=False, environment={variable: "1"}).compatible_targets is False
    with pytest.raises(kcache.ArgumentError, match=f"{variable} is 'maybe'"):
        from_environment(environment={variable: "maybe"})


# The local tiers.

ALLOW = Options(compatible_targets=True)


def become_exact(service: FakeService) -> None:
    """The service has a kernel for the target itself from now on."""
    service.change_manifest = lambda manifest: manifest
    service.compiled.clear()


def test_memory_keeps_a_lower_kernel_for_a_window(
    client: kcache.Client, service: FakeService, monkeypatch: pytest.MonkeyPatch, cache_dir: Path
) -> None:
    service.change_manifest = made_for("x86-64-v2")
    client.compile(PROGRAM, target=ASKED, options=ALLOW)
    become_exact(service)
    kernel = client.compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("memory", "x86-64-v2")
    make_old(cache_dir, 61)
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
    kernel = client.compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("compiled", ASKED)
    assert client.compile(PROGRAM, target=ASKED, options=ALLOW).origin == "memory"


def make_old(cache_dir: Path, seconds: float) -> None:
    then = time.time() - seconds
    for path in (cache_dir / "kernels").glob("*/*"):
        os.utime(path, (then, then))


def test_disk_keeps_a_lower_kernel_for_a_window(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    service.change_manifest = made_for("x86-64-v2")
    new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    become_exact(service)
    make_old(cache_dir, 30)
    for _ in range(2):
        kernel = new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
        assert (kernel.origin, str(kernel.manifest.target)) == ("disk", "x86-64-v2")
    make_old(cache_dir, 61)
    kernel = new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("compiled", ASKED)
    kernel = new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("disk", ASKED)


def test_an_exact_kernel_on_disk_comes_first(
    fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    """Also within the window, as another process of this machine asked for it."""
    service.change_manifest = made_for("x86-64-v2")
    new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    become_exact(service)
    new_client(fake.address).compile(PROGRAM, target=ASKED, options=Options(compatible_targets=False))
    kernel = new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("disk", ASKED)


def test_a_lower_kernel_on_disk_serves_nobody_who_does_not_allow_it(
    fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    service.change_manifest = made_for("x86-64-v2")
    new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    become_exact(service)
    client = new_client(fake.address)
    kernel = client.compile(PROGRAM, target=ASKED)
    assert (kernel.origin, str(kernel.manifest.target)) == ("compiled", ASKED)
    assert client.stats().client.get("disk_corrupt_entries", 0) == 0


def test_an_old_lower_kernel_serves_while_the_service_is_away(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    service.change_manifest = made_for("x86-64-v2")
    new_client(fake.address).compile(PROGRAM, target=ASKED, options=ALLOW)
    make_old(cache_dir, 3600)

    def away(reply: Any) -> Any:
        raise Rejection(grpc.StatusCode.UNAVAILABLE, "away")

    service.bend["GetKernels"] = away
    client = new_client(fake.address)
    kernel = client.compile(PROGRAM, target=ASKED, options=ALLOW)
    assert (kernel.origin, str(kernel.manifest.target)) == ("disk", "x86-64-v2")
    with pytest.raises(kcache.Unavailable):
        client.compile(PROGRAM, target=ASKED, options=dataclasses.replace(ALLOW, opt_level=1))
