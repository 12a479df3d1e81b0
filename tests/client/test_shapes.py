"""A client takes only kernels for the sizes that it asked for, whatever the server signs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc import Dim
from kcache_grpc.model.manifest import Binding, Manifest, SymbolSpec, TensorSpec
from kcache_grpc.model.variants import parse_arg_spec
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService

#: Kernels for all sizes are what is tested here, not the evidence for them
# (tests/server/variants/test_evidence.py).
pytestmark = pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning")

SYMBOL = SymbolSpec("s0", 0, 0)
BELOW_TEN = {(0, 0): Dim(max=9)}


def serve(service: FakeService, arg_spec: str, guard: str) -> None:
    """For a program of f32[4] whose size is a symbol of its spec, a kernel of this shape."""

    def bind(binding: Binding) -> Binding:
        return replace(
            binding, symbols=(SYMBOL,), symbol_values=(4,), symbolic_inputs=(TensorSpec("f32", ("s0",)),)
        )

    def describe(manifest: Manifest) -> Manifest:
        inputs = parse_arg_spec(arg_spec)
        changed = replace(manifest, arg_spec=arg_spec, guard=guard, inputs=inputs, symbols=(SYMBOL,))
        return replace(changed, kernel_digest=changed.identity.digest)

    service.change_binding, service.change_manifest = bind, describe


@pytest.mark.parametrize(
    ("requirements", "arg_spec", "guard"),
    [
        ({}, "f32[4]", ""),
        ({"dynamic": "assume"}, "f32[s0]", ""),
        ({"dynamic": "assume", "symbols": [(0, 0)]}, "f32[s0]", ""),
        ({"dynamic": "assume", "symbols": BELOW_TEN}, "f32[s0]", "s0 <= 9"),
        ({"dynamic": "auto"}, "f32[4]", ""),
        ({"dynamic": "auto"}, "f32[s0]", ""),
        ({"dynamic": "auto", "symbols": BELOW_TEN}, "f32[s0]", "2 <= s0 & s0 <= 8 & s0 % 2 == 0"),
    ],
)
def test_what_was_asked_for_is_taken_and_kept(
    fake: FakeServer,
    service: FakeService,
    new_client: NewClient,
    requirements: Any,
    arg_spec: str,
    guard: str,
) -> None:
    serve(service, arg_spec, guard)
    first = new_client(fake.address)
    assert first.compile(PROGRAM, **requirements).manifest.guard == guard
    assert first.compile(PROGRAM, **requirements).origin == "memory"
    assert new_client(fake.address).compile(PROGRAM, **requirements).origin == "disk"


@pytest.mark.parametrize(
    ("requirements", "arg_spec", "guard"),
    [
        ({}, "f32[s0]", ""),
        ({}, "f32[4]", "s0 == 4"),
        ({"dynamic": "assume"}, "f32[4]", ""),
        ({"dynamic": "assume"}, "f32[s0]", "s0 <= 9"),
        ({"dynamic": "assume", "symbols": BELOW_TEN}, "f32[s0]", ""),
        ({"dynamic": "assume", "symbols": BELOW_TEN}, "f32[s0]", "s0<=9"),
        ({"dynamic": "assume", "symbols": BELOW_TEN}, "f32[s0]", "s0 <= 10"),
        ({"dynamic": "auto"}, "f32[5]", ""),
        ({"dynamic": "auto"}, "f32[s0]", "5 <= s0"),
        ({"dynamic": "auto"}, "f32[s0]", "s0 % 2 == 1"),
        ({"dynamic": "auto"}, "f32[s1]", ""),
        ({"dynamic": "auto"}, "f64[s0]", ""),
        ({"dynamic": "auto"}, "f32[s0,1]", ""),
    ],
)
def test_a_kernel_for_other_sizes_is_rejected(
    client: kcache.Client, service: FakeService, requirements: Any, arg_spec: str, guard: str
) -> None:
    serve(service, arg_spec, guard)
    with pytest.raises(kcache.IntegrityError, match=r"guard|arg spec|does not take|dtype|bad formula"):
        client.compile(PROGRAM, **requirements)


def test_wishes_do_not_share_an_entry(fake: FakeServer, service: FakeService, new_client: NewClient) -> None:
    """Neither in memory nor on disk: the same program is kept once for each."""
    client = new_client(fake.address)
    wishes: list[tuple[dict[str, Any], str, str]] = [
        ({}, "f32[4]", ""),
        ({"dynamic": "assume"}, "f32[s0]", ""),
        ({"dynamic": "assume", "symbols": BELOW_TEN}, "f32[s0]", "s0 <= 9"),
        ({"dynamic": "auto"}, "f32[4]", ""),
    ]
    for requirements, arg_spec, guard in wishes:
        serve(service, arg_spec, guard)
        service.compiled.clear()
        assert client.compile(PROGRAM, **requirements).origin == "compiled"
    for requirements, arg_spec, guard in wishes:
        for again in (client, new_client(fake.address)):
            kernel = again.compile(PROGRAM, **requirements)
            assert kernel.origin in ("memory", "disk")
            assert (kernel.manifest.arg_spec, kernel.manifest.guard) == (arg_spec, guard)


def test_spelled_differently_the_same_wish_is_one_entry(client: kcache.Client, service: FakeService) -> None:
    serve(service, "f32[s0]", "8 <= s0 & s0 <= 16 & s0 % 8 == 0")
    service.change_binding = lambda binding: replace(
        binding,
        symbols=(SYMBOL,),
        symbol_values=(-1,),
        inputs=(TensorSpec("f32", ("s0",)),),
        symbolic_inputs=(TensorSpec("f32", ("s0",)),),
    )
    client.compile(PROGRAM, dynamic="assume", symbols={(0, 0): Dim(3, 20, 8)})
    again = client.compile(PROGRAM, dynamic="assume", layouts="row-major", symbols={(0, 0): Dim(8, 16, 8)})
    assert again.origin == "disk"
