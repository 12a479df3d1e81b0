"""Which stored kernel a lookup with ``compatible_targets`` gets, of any that there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_grpc.model.evidence import Witness
from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.model.manifest import Binding, Manifest, SymbolSpec, TensorSpec
from kcache_grpc.model.options import Options
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.sizes.guard import MAX_SIZE, guard_of, sizes
from kcache_grpc.model.sizes.modes import AUTO, ShapeRequirements
from kcache_grpc.model.target import CpuTarget, compatible_targets
from kcache_grpc.model.variants import Shape
from kcache_grpc.service import manifests
from kcache_grpc.service.lookup.batch_lookup import BatchLookup, Query
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import CompatibleKernels, Variants
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Found, KernelRequirements, KnownGraph
from kcache_grpc.storage import open_store
from kcache_grpc.storage.records import GraphDraft, KernelDraft, KernelRecord, Namespace, SignedBytes
from tests.storage.drafts import kernel as any_kernel
from tests.storage.drafts import sha256, spec

pytestmark = pytest.mark.issue(number=20, point=7)

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
PROGRAM, HOME = sha256("program"), (4, 6)
SYMBOLS = (SymbolSpec("s0", 0, 0), SymbolSpec("s1", 0, 1))
#: Kernels of a level may need features of it and of those below.
FEATURES = {"x86-64-v2": ("ssse3",), "x86-64-v3": ("avx2", "ssse3"), "x86-64-v4": ("avx512f",)}


@dataclass(frozen=True)
class Range:
    """``step * low``, ... up to ``step * high``; ``None``: without an end."""

    low: int
    high: int | None
    step: int

    @property
    def end(self) -> int:
        return MAX_SIZE if self.high is None else self.high * self.step

    @property
    def count(self) -> int:
        return self.end // self.step - self.low + 1

    def __contains__(self, size: int) -> bool:
        return size in range(self.low * self.step, self.end + 1, self.step)


@dataclass(frozen=True)
class Stored:
    """A kernel: for one target, and for the sizes of a program or for ranges of them."""

    target: str
    first: Range | None
    second: Range | None
    needs_features: bool

    @property
    def shape(self) -> Shape:
        ranges = {"s0": self.first, "s1": self.second}
        allowed = {
            name: each and sizes(each.low * each.step, each.end, each.step) for name, each in ranges.items()
        }
        guard = guard_of({name: some for name, some in allowed.items() if some is not None})
        assert guard is not None
        dims = [name if ranges[name] else str(size) for name, size in zip(ranges, HOME, strict=True)]
        return Shape(f"f32[{','.join(dims)}]", guard.text)

    @property
    def takes_home(self) -> bool:
        pairs = zip((self.first, self.second), HOME, strict=True)
        return all(each is None or size in each for each, size in pairs)

    @property
    def count(self) -> int:
        return (self.first.count if self.first else 1) * (self.second.count if self.second else 1)


ranges = st.builds(
    lambda low, more, step: Range(low, None if more is None else low + more, step),
    st.integers(0, 4),
    st.none() | st.integers(1, 6),
    st.sampled_from([1, 1, 2, 3]),
)
kernels = st.lists(
    st.builds(Stored, st.sampled_from(LEVELS), st.none() | ranges, st.none() | ranges, st.booleans()),
    max_size=10,
    unique_by=lambda each: (each.target, each.shape),
)


def expected(stored: Sequence[Stored], asked: str, compatible: bool) -> Stored | None:
    """Exact target, then the highest level; the fewest sizes; the oldest."""
    order = [asked, *map(str, compatible_targets(CpuTarget(asked)))] if compatible else [asked]
    serving = [each for each in stored if each.target in order and each.takes_home]
    return min(serving, key=lambda each: (order.index(each.target), each.count), default=None)


TOOLCHAIN = Toolchain((("llvm", "22"),))
TOOLCHAINS = Toolchains(TOOLCHAIN, TOOLCHAIN)


def graph_of(namespace: Namespace) -> KnownGraph:
    binding = Binding(
        program_digest=PROGRAM,
        numerics="default",
        namespace=namespace.name,
        epoch=namespace.epoch,
        key=1,
        spec_digest=spec(1).spec_digest,
        inputs=(TensorSpec("f32", tuple(map(str, HOME))),),
        arg_names=("x",),
        outputs=(TensorSpec("f32", tuple(map(str, HOME))),),
        symbols=SYMBOLS,
        symbol_values=HOME,
        constants=(),
        symbolic_inputs=(TensorSpec("f32", ("s0", "s1")),),
    )
    return KnownGraph(
        PROGRAM, 1, spec(1).spec_digest, "f32[4,6]", Signed(binding.to_bytes(), b"signature", b"key")
    )


def wish_for(target: str, compatible: bool) -> KernelRequirements:
    """A choice of the service, with evidence that both sizes may change."""
    other = Witness(sha256("other"), spec(1).spec_digest, (("s0", 5), ("s1", 9)), frozenset(), ())
    requirements = ShapeRequirements(AUTO)
    return KernelRequirements(CpuTarget(target), Options(), requirements, (other,), compatible)


def draft(stored: Stored, graph: KnownGraph) -> KernelDraft:
    requirements, shape = wish_for(stored.target, compatible=False), stored.shape
    digest = manifests.identity(graph, shape, requirements, TOOLCHAINS).digest
    manifest = Manifest(
        digest, graph.spec_digest, 1, "default", 1, requirements.target, requirements.options,
        TOOLCHAIN.digest, shape.guard, shape.arg_spec, 1, (), (), (), SYMBOLS, "0", (),
        FEATURES[stored.target] if stored.needs_features else (), (), (), "test",
        datetime(2026, 1, 1, tzinfo=timezone.utc), 1.0, TOOLCHAIN.ingredients,
    )  # fmt: skip
    record = KernelRecord(
        digest, 1, shape.arg_spec, shape.guard, stored.target, str(requirements.options), TOOLCHAIN.digest
    )
    any_one = any_kernel(1)
    return KernelDraft(
        record, SignedBytes(manifest.to_bytes(), b"signature"), any_one.artifacts, any_one.ingredients, 1
    )


class OneGraph:
    """In the place of ``Graphs``."""

    def __init__(self, graph: KnownGraph) -> None:
        self._graph = graph

    async def find(
        self, space: Namespace, digests: Sequence[bytes], numerics: str
    ) -> dict[bytes, KnownGraph]:
        return {self._graph.program_digest: self._graph}


class NoFailures:
    """In the place of ``Failures``."""

    async def find(self, namespace: Namespace, names: Sequence[bytes]) -> dict[bytes, Any]:
        return {}


@pytest.fixture(scope="module")
def threads() -> Iterator[StoreThreads]:
    threads = StoreThreads(1)
    yield threads
    threads.close()


@settings(max_examples=150, deadline=None)
@given(kernels, st.sampled_from(LEVELS), st.booleans())
def test_exact_targets_then_higher_levels_then_the_most_specific_then_the_oldest(
    threads: StoreThreads, stored: list[Stored], asked: str, compatible: bool
) -> None:
    with open_store("memory:") as store:
        space = store.get_or_create_namespace("default")
        graph = graph_of(space)
        store.put_graph(
            space, GraphDraft(spec(1), PROGRAM, lambda _: SignedBytes(graph.binding.payload, b"s"), ())
        )
        names: dict[bytes, Stored] = {}
        for each in stored:
            published = draft(each, graph)
            names[published.kernel.kernel_digest] = each
            store.publish_kernel(space, published)
        known = Kernels(store, threads, b"key")
        variants = Variants(store, threads, known, TOOLCHAINS, b"key")
        lookups = BatchLookup(
            store,
            threads,
            cast("Any", OneGraph(graph)),
            known,
            variants,
            cast("Any", NoFailures()),
            TOOLCHAINS,
            b"key",
            CompatibleKernels(known, variants, TOOLCHAINS),
        )

        async def look() -> list[Any]:
            query = Query(space, wish_for(asked, compatible), frozenset(), 0)
            return [answer async for part in lookups.find(query, [PROGRAM]) for answer in part]

        (answer,) = asyncio.run(look())
    got = names[answer.kernel.digest] if isinstance(answer, Found) else None
    assert got == expected(stored, asked, compatible)
