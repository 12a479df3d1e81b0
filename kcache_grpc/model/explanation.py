"""Why a request finds its kernel, or how it differs from the nearest stored ones; and that on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import cast

from google.protobuf import timestamp_pb2

from kcache_grpc._proto.kcache.v1 import explain_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Steps that end in a hit; every other one is a miss.
HITS = ("FOUND_BY_PROGRAM", "FOUND_BY_SPEC")


@dataclass(frozen=True)
class Difference:
    """One ingredient that differs between a request and a stored kernel."""

    #: ``"toolchain.llvm"``, ``"target"``, ``"options.opt_level"``, ``"arg_spec"``, ``"guard"``, ``"epoch"``;
    #: under another spec ``"numerics"``, ``"argument 0"``, ``"operation"``, ``"constant"`` and the like.
    name: str
    #: Its value in the request; empty where it has none.
    yours: str
    #: Its value in the neighbor; empty where it has none.
    theirs: str
    #: A sentence that says so.
    sentence: str


@dataclass(frozen=True)
class Neighbor:
    """A stored kernel, or a stored spec without kernels, near to what was asked for."""

    #: Key of its spec.
    key: int
    #: SHA-256 of its spec, 32 bytes.
    spec_digest: bytes
    #: 32 bytes; empty when its spec has no kernel.
    kernel_digest: bytes
    #: When the kernel was published, or the spec stored, UTC.
    created: datetime
    #: The larger, the more has to change. Below 64: a kernel of the same spec.
    distance: int
    #: What weighs most first.
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class MappingOfSpec:
    """A program that leads to a spec."""

    #: 32 bytes.
    program_digest: bytes
    #: When it was stored, UTC.
    created: datetime
    #: Whether it is the program of the request.
    own: bool


@dataclass(frozen=True)
class FailedBefore:
    """A compile that failed and is not tried again before ``retry``."""

    #: As in the errors: ``COMPILE_FAILED``, ``UNSUPPORTED_OP``, ``COMPILE_TIMEOUT``.
    reason: str
    #: Stage that failed.
    stage: str
    #: What it said.
    message: str
    #: How often it failed.
    count: int
    #: When it failed last, and when the next request tries again, UTC.
    last: datetime
    retry: datetime


@dataclass(frozen=True)
class Explanation:
    """What becomes of a request at the service, and why. ``str()`` of it is for people."""

    #: Where the lookup ended. Hits: ``"FOUND_BY_PROGRAM"``, ``"FOUND_BY_SPEC"``. Misses:
    #: ``"NAMESPACE_EMPTY"``, ``"SPEC_UNKNOWN"``, ``"NO_KERNEL"``, ``"EPOCH"``, ``"TOOLCHAIN"``, ``"TARGET"``,
    #: ``"OPTIONS"``, ``"SIZES"``, ``"GUARD"``, ``"FAILED"``, ``"COMPILING"``, ``"BYTES_LOST"``.
    step: str
    #: The answer in one sentence.
    summary: str
    #: SHA-256 of format and bytes of the program, 32 bytes.
    program_digest: bytes
    #: Whether the service has a mapping of the program; else it was canonicalized for this answer.
    program_known: bool
    #: Key of the program's spec; 0 when it has none.
    key: int
    #: SHA-256 of the program's spec, 32 bytes; empty when the program cannot be read.
    spec_digest: bytes
    #: The kernel that was found, or the name of the one that would be compiled first; empty as above.
    kernel_digest: bytes = b""
    #: Arg spec and guard of that kernel.
    arg_spec: str = ""
    guard: str = ""
    #: Programs that lead to the spec: the request's own, then the oldest. At most 10.
    mappings: tuple[MappingOfSpec, ...] = ()
    #: With ``"FAILED"``.
    failure: FailedBefore | None = None
    #: Nearest first; none with a hit.
    nearest: tuple[Neighbor, ...] = ()
    #: With a hit: the lower target of the kernel, empty where it is for the target of the request. With a
    #: miss: that of a stored kernel that would serve it with ``compatible_targets``; empty without one.
    compatible_target: str = ""

    @property
    def hit(self) -> bool:
        """Whether the kernel is stored and serves this request."""
        return self.step in HITS

    def __str__(self) -> str:
        lines = [f"{'hit' if self.hit else 'miss'}: {self.summary}"]
        lines += [
            f"  program {each.program_digest.hex()[:16]} leads to key {self.key} since {_day(each.created)}"
            + (" (yours)" if each.own else "")
            for each in self.mappings
        ]
        for number, near in enumerate(self.nearest, start=1):
            lines.append(f"  {number}. {describe_neighbor(near)}")
            lines += [f"     {difference.sentence}" for difference in near.differences]
        return "\n".join(lines)


def describe_neighbor(near: Neighbor) -> str:
    """A neighbor in one line."""
    kernel = f"kernel {near.kernel_digest.hex()[:16]}" if near.kernel_digest else "no kernel"
    return f"key {near.key}, {kernel}, of {_day(near.created)}, distance {near.distance}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def at(microseconds: int) -> datetime:
    """UTC microseconds since 1970 as a time."""
    return _EPOCH + timedelta(microseconds=microseconds)


def explanation_to_proto(value: Explanation) -> explain_pb2.ExplainResponse:
    """To the wire."""
    failure = value.failure
    return explain_pb2.ExplainResponse(
        step=cast("explain_pb2.ExplainStep", explain_pb2.ExplainStep.Value(f"EXPLAIN_STEP_{value.step}")),
        summary=value.summary,
        program_digest=value.program_digest,
        program_known=value.program_known,
        key=value.key,
        spec_digest=value.spec_digest,
        kernel_digest=value.kernel_digest,
        arg_spec=value.arg_spec,
        guard=value.guard,
        mappings=[
            explain_pb2.ExplainMapping(
                program_digest=each.program_digest, create_time=_time(each.created), own=each.own
            )
            for each in value.mappings
        ],
        failure=None
        if failure is None
        else explain_pb2.ExplainFailure(
            reason=failure.reason,
            stage=failure.stage,
            message=failure.message,
            count=failure.count,
            last_time=_time(failure.last),
            retry_time=_time(failure.retry),
        ),
        nearest=map(_neighbor_to_proto, value.nearest),
        compatible_target=value.compatible_target,
    )


def explanation_from_proto(message: explain_pb2.ExplainResponse) -> Explanation:
    """From the wire; a step of a later version keeps its number as its name."""
    names = {number: name.removeprefix("EXPLAIN_STEP_") for name, number in explain_pb2.ExplainStep.items()}
    failure = message.failure
    return Explanation(
        step=names.get(message.step, str(message.step)),
        summary=message.summary,
        program_digest=message.program_digest,
        program_known=message.program_known,
        key=message.key,
        spec_digest=message.spec_digest,
        kernel_digest=message.kernel_digest,
        arg_spec=message.arg_spec,
        guard=message.guard,
        mappings=tuple(
            MappingOfSpec(each.program_digest, _datetime(each.create_time), each.own)
            for each in message.mappings
        ),
        failure=FailedBefore(
            failure.reason,
            failure.stage,
            failure.message,
            failure.count,
            _datetime(failure.last_time),
            _datetime(failure.retry_time),
        )
        if message.HasField("failure")
        else None,
        nearest=tuple(_neighbors_from_proto(message.nearest)),
        compatible_target=message.compatible_target,
    )


def _neighbor_to_proto(near: Neighbor) -> explain_pb2.ExplainNeighbor:
    return explain_pb2.ExplainNeighbor(
        key=near.key,
        spec_digest=near.spec_digest,
        kernel_digest=near.kernel_digest,
        create_time=_time(near.created),
        distance=near.distance,
        differences=[
            explain_pb2.ExplainDifference(
                name=each.name, yours=each.yours, theirs=each.theirs, sentence=each.sentence
            )
            for each in near.differences
        ],
    )


def _neighbors_from_proto(messages: Iterable[explain_pb2.ExplainNeighbor]) -> Iterable[Neighbor]:
    for near in messages:
        differences = (
            Difference(each.name, each.yours, each.theirs, each.sentence) for each in near.differences
        )
        yield Neighbor(
            near.key,
            near.spec_digest,
            near.kernel_digest,
            _datetime(near.create_time),
            near.distance,
            tuple(differences),
        )


def _time(moment: datetime) -> timestamp_pb2.Timestamp:
    elapsed = moment - _EPOCH
    return timestamp_pb2.Timestamp(
        seconds=elapsed.days * 86_400 + elapsed.seconds, nanos=elapsed.microseconds * 1000
    )


def _datetime(message: timestamp_pb2.Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
