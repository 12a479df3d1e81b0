"""Explain against a real server: each way to hit and to miss, told from what is really stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import common_pb2, explain_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.explanation import Explanation, explanation_from_proto
from kcache_grpc.model.identity import KernelIdentity, toolchain_digest
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import (
    ArtifactDraft,
    Failure,
    KernelDraft,
    KernelRecord,
    Lease,
    Namespace,
    StoredKernel,
)
from kcache_grpc.worker import WorkerSettings
from tests.server.harness import gated_jobs
from tests.server.harness.programs import (
    ISA,
    TARGET,
    add,
    by_digest,
    compile_request,
    digest,
    header,
    inline,
)
from tests.server.harness.running import Running, config_in, running

OTHER_TARGET = common_pb2.Target(cpu=common_pb2.CpuTarget(isa="x86-64-v2"))
BODY = """
module {{ func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {{
  %h = stablehlo.constant dense<{constant}> : tensor<4x8xf32>
  %a = stablehlo.add %x, %y : tensor<4x8xf32>
  %b = stablehlo.multiply %a, %h : tensor<4x8xf32>
  %c = stablehlo.{op} %b : tensor<4x8xf32>
  return %c : tensor<4x8xf32>
}} }}
"""


def chain(op: str = "tanh", constant: str = "0.5", dtype: str = "f32") -> bytes:
    return BODY.format(op=op, constant=constant).replace("xf32", f"x{dtype}").encode()


class Space:
    """A namespace of the server, and what stands in its store."""

    def __init__(self, server: Running, name: str) -> None:
        self.server = server
        self.name = name

    def compile(self, body: bytes, **rest: Any) -> None:
        list(self.server.stub.CompileKernel(compile_request(inline(body), self.name, **rest)))

    def explain(self, graph: bytes | common_pb2.GraphSource, **rest: Any) -> Explanation:
        rest.setdefault("target", TARGET)
        source = inline(graph) if isinstance(graph, bytes) else graph
        request = explain_pb2.ExplainRequest(header=header(self.name), graph=source, **rest)
        return explanation_from_proto(self.server.stub.Explain(request))

    def stats(self) -> pb.GetStatsResponse:
        return self.server.stub.GetStats(pb.GetStatsRequest(header=header(self.name)))

    def store(self) -> Store:
        return open_store(self.server.config.db)

    def namespace(self, store: Store) -> Namespace:
        return store.get_or_create_namespace(self.name)


@pytest.fixture
def space(server: Running, request: pytest.FixtureRequest) -> Space:
    return Space(server, re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:100])


def sentences(explanation: Explanation, neighbor: int = 0) -> list[str]:
    return [difference.sentence for difference in explanation.nearest[neighbor].differences]


class TestHits:
    def test_by_the_programs_own_mapping(self, space: Space) -> None:
        space.compile(add(4))
        for graph in (inline(add(4)), by_digest(add(4))):
            explanation = space.explain(graph)
            assert (explanation.hit, explanation.step, explanation.program_known) == (
                True,
                "FOUND_BY_PROGRAM",
                True,
            )
            assert (explanation.key, explanation.program_digest, explanation.guard) == (1, digest(add(4)), "")
            assert explanation.arg_spec == "f32[4,8];f32[4,8]"
            (mapping,) = explanation.mappings
            assert (mapping.program_digest, mapping.own) == (digest(add(4)), True)
            assert explanation.nearest == ()
        assert str(explanation).startswith("hit: this program was stored on ")

    def test_by_another_program_with_the_same_spec(self, space: Space) -> None:
        space.compile(add(4))
        before = space.stats()
        explanation = space.explain(add(4, names=("x", "y")))
        assert (explanation.hit, explanation.step, explanation.program_known) == (
            True,
            "FOUND_BY_SPEC",
            False,
        )
        (mapping,) = explanation.mappings
        assert (mapping.program_digest, mapping.own) == (digest(add(4)), False)
        after = space.stats()
        assert (after.specs, after.mappings, after.kernels) == (before.specs, before.mappings, before.kernels)
        assert after.hits == before.hits

    def test_the_own_mapping_comes_first(self, space: Space) -> None:
        space.compile(add(4))
        space.compile(add(4, names=("x", "y")))
        explanation = space.explain(add(4, names=("x", "y")))
        assert [mapping.own for mapping in explanation.mappings] == [True, False]
        assert [mapping.program_digest for mapping in explanation.mappings] == [
            digest(add(4, names=("x", "y"))),
            digest(add(4)),
        ]

    def test_a_dynamic_kernel_with_its_guard(self, space: Space) -> None:
        axis = common_pb2.SymbolAxis(arg=0, axis=0, multiple_of=4)
        dynamic = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_DYNAMIC, axes=[axis], assume=True)
        space.compile(add(4), shapes=dynamic)
        auto = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_AUTO)
        alone = space.explain(add(4), shapes=auto)
        assert (alone.hit, alone.arg_spec) == (False, "f32[4,8];f32[4,8]")
        space.server.stub.StoreGraph(pb.StoreGraphRequest(header=header(space.name), graph=inline(add(6))))
        explanation = space.explain(add(4), shapes=auto)
        assert explanation.hit
        assert (explanation.arg_spec, explanation.guard) == ("f32[s0,8];f32[s0,8]", "s0 % 4 == 0")


class TestMisses:
    def test_nothing_was_ever_stored(self, space: Space) -> None:
        explanation = space.explain(add(4))
        assert (explanation.hit, explanation.step, explanation.key, explanation.nearest) == (
            False,
            "NAMESPACE_EMPTY",
            0,
            (),
        )
        assert space.name in explanation.summary
        assert space.stats().specs == 0

    def test_a_spec_without_a_kernel(self, space: Space) -> None:
        space.server.stub.StoreGraph(pb.StoreGraphRequest(header=header(space.name), graph=inline(add(4))))
        explanation = space.explain(add(4))
        assert (explanation.step, explanation.key, explanation.nearest) == ("NO_KERNEL", 1, ())
        assert [mapping.own for mapping in explanation.mappings] == [True]

    def test_another_target(self, space: Space) -> None:
        space.compile(add(4))
        explanation = space.explain(add(4), target=OTHER_TARGET)
        assert explanation.step == "TARGET"
        assert sentences(explanation) == [f"compiled for {ISA}, you asked for x86-64-v2"]
        assert str(explanation).startswith("miss: the kernels of its spec are for other targets")

    def test_other_options(self, space: Space) -> None:
        space.compile(add(4))
        explanation = space.explain(add(4), options=common_pb2.Options(opt_level=1))
        assert explanation.step == "OPTIONS"
        assert sentences(explanation) == ["compiled with opt_level 3, you asked for opt_level 1"]
        assert [difference.name for difference in explanation.nearest[0].differences] == ["options.opt_level"]

    def test_other_sizes(self, space: Space) -> None:
        space.compile(add(4))
        explanation = space.explain(add(6))
        assert (explanation.step, explanation.key, explanation.program_known) == ("SIZES", 1, False)
        said = (
            "argument 0 is f32[6,8] here and f32[4,8] there, argument 1 is f32[6,8] here and f32[4,8] there"
        )
        assert sentences(explanation) == [f"sizes differ: {said}"]

    def test_a_kernel_for_all_sizes_that_was_not_asked_for(self, space: Space) -> None:
        assumed = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_DYNAMIC, assume=True)
        space.compile(add(4), shapes=assumed)
        explanation = space.explain(add(4))
        assert explanation.step == "SIZES"
        (sentence,) = sentences(explanation)
        assert sentence.startswith(
            "it is one kernel for all sizes of s0, s1, and takes yours; you asked for one"
        )
        assert 'dynamic="auto"' in sentence

    def test_a_guard_that_does_not_hold(self, space: Space) -> None:
        axis = common_pb2.SymbolAxis(arg=0, axis=0, multiple_of=4)
        dynamic = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_DYNAMIC, axes=[axis], assume=True)
        space.compile(add(4), shapes=dynamic)
        explanation = space.explain(
            add(6), shapes=common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_AUTO)
        )
        assert explanation.step == "GUARD"
        assert "its guard does not hold: s0 % 4 == 0, and s0 (axis 0 of argument 0) is 6 here" in sentences(
            explanation
        )

    def test_another_toolchain_ingredient_by_ingredient(self, space: Space) -> None:
        space.compile(add(4))
        with space.store() as store:
            namespace = space.namespace(store)
            (kernel,) = store.list_kernels(namespace, 1)
            ours = store.list_ingredients(namespace, kernel.kernel.kernel_digest)
            publish_for_other_toolchain(
                store, namespace, kernel, {"llvmlite": "0.49.0", "pipeline": "0" * 64}
            )
        explanation = space.explain(add(4), target=OTHER_TARGET)
        assert explanation.step == "TARGET"
        assert sentences(explanation, 1)[0] == f"compiled for {ISA}, you asked for x86-64-v2"
        assert sentences(explanation, 1)[1].startswith("the toolchain differs: llvmlite ")
        assert sentences(explanation, 1)[1].endswith(" here, 0.49.0 there")
        assert "the text of its pipeline is another" in sentences(explanation, 1)[2]
        assert f"llvmlite {dict(ours)['toolchain.llvmlite']} here" in sentences(explanation, 1)[1]
        assert [near.distance for near in explanation.nearest] == [16, 24], (
            "the kernel of this toolchain is nearer"
        )

    def test_only_another_toolchain(self, space: Space) -> None:
        space.compile(add(4))
        with space.store() as store:
            namespace = space.namespace(store)
            (kernel,) = store.list_kernels(namespace, 1)
            other = space.server.stub.StoreGraph(
                pb.StoreGraphRequest(header=header(space.name), graph=inline(chain()))
            )
            publish_for_other_toolchain(store, namespace, kernel, {"llvm": "19.1.0"}, key=other.key)
        explanation = space.explain(chain())
        assert (explanation.step, explanation.key) == ("TOOLCHAIN", other.key)
        assert re.fullmatch(
            r"the toolchain differs: llvm \S+ here, 19\.1\.0 there", sentences(explanation)[0]
        )

    def test_an_earlier_epoch(self, space: Space) -> None:
        space.compile(add(4))
        with space.store() as store:
            store.raise_epoch(space.namespace(store))
        explanation = space.explain(add(4))
        while explanation.hit:  # the epoch is noticed within a second
            explanation = space.explain(add(4))
        assert (explanation.step, explanation.program_known, explanation.key) == ("EPOCH", False, 1)
        text = "it belongs to epoch 1, which was disowned: the namespace is in epoch 2"
        assert sentences(explanation) == [text]
        assert explanation.mappings == ()

    def test_a_compile_that_failed_before(self, space: Space) -> None:
        reply = space.server.stub.StoreGraph(
            pb.StoreGraphRequest(header=header(space.name), graph=inline(add(4)))
        )
        assert reply.key == 1
        name = space.explain(add(4)).kernel_digest
        with space.store() as store:
            failure = Failure("COMPILE_FAILED", "lower", "no such pattern")
            record = store.record_failure(space.namespace(store), name, failure, 60)
        explanation = space.explain(add(4))
        assert (explanation.step, explanation.kernel_digest) == ("FAILED", name)
        assert explanation.failure is not None
        assert (explanation.failure.reason, explanation.failure.stage) == ("COMPILE_FAILED", "lower")
        assert (explanation.failure.message, explanation.failure.count) == ("no such pattern", 1)
        assert round(explanation.failure.retry.timestamp() * 1e6) == record.expires_at
        assert "failed once and is not tried again before" in explanation.summary

    def test_a_compile_that_runs(self, space: Space) -> None:
        space.server.stub.StoreGraph(pb.StoreGraphRequest(header=header(space.name), graph=inline(add(4))))
        name = space.explain(add(4)).kernel_digest
        with space.store() as store:
            lease = store.acquire_lease(space.namespace(store), name, "somebody", 60)
            assert isinstance(lease, Lease)
            assert space.explain(add(4)).step == "COMPILING"
            store.release_lease(lease)
        assert space.explain(add(4)).step == "NO_KERNEL"

    def test_bytes_that_are_lost(self, space: Space) -> None:
        space.server.stub.StoreGraph(pb.StoreGraphRequest(header=header(space.name), graph=inline(add(4))))
        wanted = space.explain(add(4))
        with space.store() as store:
            namespace = space.namespace(store)
            other = Space(space.server, f"{space.name}-source")
            other.compile(add(4))
            (kernel,) = store.list_kernels(other.namespace(store), 1)
            draft = copied(store, other.namespace(store), kernel)
            assert draft.kernel.kernel_digest == wanted.kernel_digest
            store.publish_kernel(namespace, draft)
            store.quarantine_artifact(namespace, draft.artifacts[0].digest, "test")
        explanation = space.explain(add(4))
        assert (explanation.step, explanation.nearest[0].distance) == ("BYTES_LOST", 0)
        assert explanation.nearest[0].differences == ()


class TestUnknownSpecs:
    @pytest.fixture(autouse=True)
    def _stored(self, space: Space) -> None:
        space.compile(chain())
        space.compile(add(4))

    def test_one_operation(self, space: Space) -> None:
        explanation = space.explain(chain(op="logistic"))
        assert (explanation.step, explanation.key, explanation.program_known) == ("SPEC_UNKNOWN", 0, False)
        assert [near.key for near in explanation.nearest] == [1, 2]
        (sentence,) = sentences(explanation)
        assert re.fullmatch(
            r"operation \d+: yours is logistic of %(\d+), the stored one is tanh of %\1", sentence
        )
        assert len(explanation.nearest[0].kernel_digest) == 32

    def test_one_constant(self, space: Space) -> None:
        explanation = space.explain(chain(constant="0.25"))
        (sentence,) = sentences(explanation)
        assert re.fullmatch(r"operation \d+, multiply: a constant differs: 0\.25 here, 0\.5 there", sentence)

    def test_the_element_type(self, space: Space) -> None:
        explanation = space.explain(chain(dtype="f64"))
        assert [difference.name for difference in explanation.nearest[0].differences] == [
            "argument 0",
            "argument 1",
        ]
        assert sentences(explanation)[0].startswith("argument 0 is of f64 here and of f32 there")

    def test_the_numerics_class(self, space: Space) -> None:
        explanation = space.explain(chain(), options=common_pb2.Options(numerics=common_pb2.NUMERICS_STRICT))
        assert sentences(explanation) == ["the numerics class differs: strict here, default there"]

    def test_spec_and_target(self, space: Space) -> None:
        explanation = space.explain(chain(op="logistic"), target=OTHER_TARGET)
        assert sentences(explanation)[-1] == f"compiled for {ISA}, you asked for x86-64-v2"

    def test_how_many_are_compared(self, space: Space) -> None:
        assert len(space.explain(chain(op="logistic"), max_neighbors=1).nearest) == 1
        distances = [near.distance for near in space.explain(chain(op="logistic")).nearest]
        assert distances == sorted(distances)
        assert distances[0] >= 64

    def test_nothing_is_stored_or_compiled(self, space: Space) -> None:
        before = space.stats()
        space.explain(chain(op="cosine"))
        after = space.stats()
        assert (after.specs, after.mappings, after.kernels) == (before.specs, before.mappings, before.kernels)


class TestCrashes:
    @pytest.fixture
    def crashing(self, tmp_path: Path) -> Iterator[Space]:
        settings = gated_jobs.write_module(tmp_path / "jobs")
        (tmp_path / "jobs" / "open").touch()
        with running(config_in(tmp_path, worker=settings)) as server:
            yield Space(server, "crashes")

    def test_a_compile_that_crashed(self, crashing: Space) -> None:
        body = add(gated_jobs.SEGFAULT)
        with pytest.raises(grpc.RpcError):
            crashing.compile(body)
        explanation = crashing.explain(body)
        assert (explanation.step, explanation.key, explanation.program_known) == ("FAILED", 1, True)
        assert explanation.failure is not None
        assert (explanation.failure.reason, explanation.failure.stage) == ("COMPILE_FAILED", "waiting")
        assert explanation.failure.retry > explanation.failure.last

    def test_a_program_that_breaks_its_parser(self, crashing: Space) -> None:
        body = add(71) + b"// poison\n"
        with pytest.raises(grpc.RpcError):
            crashing.compile(body)
        explanation = crashing.explain(body)
        assert (explanation.step, explanation.key, explanation.spec_digest) == ("FAILED", 0, b"")
        assert explanation.program_digest == digest(body)
        assert explanation.summary.startswith("reading it failed once")
        assert explanation.failure is not None

    def test_a_comparison_that_is_killed(self, tmp_path: Path) -> None:
        (tmp_path / "weak_jobs.py").write_text(
            "import os\n"
            "from kcache_grpc.worker.child import jobs\n"
            "hello, warm = jobs.hello, jobs.warm\n"
            "JOBS = {**jobs.JOBS, 'compare': lambda request, on_stage: os.abort()}\n"
        )
        settings = WorkerSettings(memory_bytes=4 << 30, jobs="weak_jobs", extra_path=(str(tmp_path),))
        with running(config_in(tmp_path, worker=settings)) as server:
            space = Space(server, "weak")
            space.compile(add(4))
            explanation = space.explain(chain())
            assert (explanation.step, explanation.nearest) == ("SPEC_UNKNOWN", ())
            assert "was given up" in explanation.summary
            assert space.explain(add(4)).hit


class TestErrors:
    def test_an_unknown_digest_asks_for_the_program(self, space: Space) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            space.explain(by_digest(add(4)))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    def test_a_program_that_is_none(self, space: Space) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            space.explain(b"func.func @main( {")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    def test_too_many_neighbors(self, space: Space) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            space.explain(add(4), max_neighbors=21)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    def test_no_target(self, space: Space) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            space.explain(add(4), target=common_pb2.Target())
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def copied(store: Store, namespace: Namespace, kernel: StoredKernel) -> KernelDraft:
    """A stored kernel as a draft that another namespace can publish."""
    artifacts = []
    for ref in kernel.artifacts:
        content = store.read_artifact(namespace, ref.digest)
        assert content is not None
        artifacts.append(ArtifactDraft(ref.kind, ref.digest, content))
    ingredients = store.list_ingredients(namespace, kernel.kernel.kernel_digest)
    return KernelDraft(kernel.kernel, kernel.manifest, tuple(artifacts), ingredients, kernel.compile_us)


def publish_for_other_toolchain(
    store: Store, namespace: Namespace, kernel: StoredKernel, versions: dict[str, str], key: int = 0
) -> None:
    """The same kernel as if a server with other versions had compiled it."""
    draft = copied(store, namespace, kernel)
    prefix = "toolchain."
    ours = [(k.removeprefix(prefix), v) for k, v in draft.ingredients if k.startswith(prefix)]
    theirs = tuple((name, versions.get(name, value)) for name, value in ours)
    record = draft.kernel
    spec = store.get_spec(namespace, key or record.key)
    assert spec is not None
    identity = KernelIdentity(
        spec.spec_digest,
        record.arg_spec,
        record.guard,
        record.target,
        record.options,
        toolchain_digest(theirs),
    )
    named = KernelRecord(
        identity.digest,
        spec.key,
        record.arg_spec,
        record.guard,
        record.target,
        record.options,
        identity.toolchain_digest,
    )
    ingredients = identity.ingredients + tuple((f"{prefix}{name}", value) for name, value in theirs)
    store.publish_kernel(namespace, replace(draft, kernel=named, ingredients=ingredients))
