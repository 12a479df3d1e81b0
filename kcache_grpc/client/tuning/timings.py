"""Timings of schedules, to the service and from it, and the name of this machine, under which they are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from google.protobuf.duration_pb2 import Duration

from kcache_grpc._proto.kcache.v1 import autotune_pb2
from kcache_grpc.client.requests.graphs import bind
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Method
from kcache_grpc.client.transport.transfer import with_witnesses
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.evidence import dynamic_shape
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import winner_of_sizes
from kcache_grpc.model.sizes.modes import DYNAMIC
from kcache_grpc.model.target import Target
from kcache_grpc.model.variants import exact_shape, parse_arg_spec, spec_sizes
from kcache_grpc.model.wire import options_to_proto, target_to_proto
from kcache_grpc.runtime.cpu.threads import thread_count

RECORD_TIMINGS = Method(
    "RecordTimings", autotune_pb2.RecordTimingsRequest, autotune_pb2.RecordTimingsResponse, "Autotune"
)
LIST_TIMINGS = Method(
    "ListTimings", autotune_pb2.ListTimingsRequest, autotune_pb2.ListTimingsResponse, "Autotune"
)
_MODEL = re.compile(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ScheduleTiming:
    """A schedule, ``""`` for all defaults, and the median nanoseconds of a call."""

    schedule: str
    nanoseconds: int
    samples: int
    #: Of dynamic sizes those that it is of, such as ``"s0=64,s1=128"``.
    sizes: str = ""


def subject_of(
    spec_digest: bytes, arg_spec: str, target: Target, options: Options, sizes: str = ""
) -> autotune_pb2.TuningSubject:
    """What is tuned, on this machine; ``sizes`` are the dynamic ones of ``arg_spec``."""
    return autotune_pb2.TuningSubject(
        spec_digest=spec_digest,
        arg_spec=arg_spec,
        target=target_to_proto(target),
        options=options_to_proto(replace(options, schedule="")),
        device=device_for(target),
        sizes=sizes,
    )


def device_for(target: Target) -> str:
    """The name of what runs kernels for ``target`` here. Raises ``ArgumentError`` where nothing does."""
    if not isinstance(target, GpuTarget):
        return device_name()
    from kcache_grpc.runtime.gpu.device import device_numbered

    device = device_numbered(0)
    device.require(target)
    return device.name


async def record(
    connection: Connection,
    subject: autotune_pb2.TuningSubject,
    timings: Sequence[ScheduleTiming],
    deadline: Deadline,
) -> int:
    """Keeps timings at the service; how many were new."""
    request = autotune_pb2.RecordTimingsRequest(
        header=connection.header(),
        subject=subject,
        timings=[
            autotune_pb2.ScheduleTiming(
                schedule=each.schedule,
                duration=Duration(
                    seconds=each.nanoseconds // 1_000_000_000, nanos=each.nanoseconds % 1_000_000_000
                ),
                sample_count=each.samples,
            )
            for each in timings
        ],
    )
    return (await connection.channel.unary(RECORD_TIMINGS, request, deadline)).created_count


async def stored(
    connection: Connection, subject: autotune_pb2.TuningSubject, deadline: Deadline
) -> tuple[ScheduleTiming, ...]:
    """All timings of a subject, by dynamic sizes, then fastest first."""
    timings: list[ScheduleTiming] = []
    token = ""
    while True:
        request = autotune_pb2.ListTimingsRequest(
            header=connection.header(), subject=subject, page_token=token
        )
        reply = await connection.channel.unary(LIST_TIMINGS, request, deadline)
        for each in reply.timings:
            nanoseconds = each.duration.seconds * 1_000_000_000 + each.duration.nanos
            timings.append(ScheduleTiming(each.schedule, nanoseconds, each.sample_count, each.sizes))
        if not reply.next_page_token:
            return tuple(timings)
        if reply.next_page_token == token:
            raise IntegrityError("the server answered one page of timings with itself")
        token = reply.next_page_token


async def recorded(connection: Connection, request: KernelRequest, deadline: Deadline) -> str:
    """The best schedule that the service has timings of, for this machine; ``""`` where it has none."""
    binding = await bind(connection, request.program, request.options.numerics, deadline)
    if request.shapes.mode == DYNAMIC:
        request = await with_witnesses(connection, request, deadline)
        shape = dynamic_shape(binding, request.shapes, request.witnesses or ())
    else:
        shape = exact_shape(spec_sizes(binding))
    try:
        subject = subject_of(binding.spec_digest, shape.arg_spec, request.target, request.options)
    except ArgumentError:  # no GPU here: whoever compiles for another machine gets the default
        return ""
    try:
        return best(await stored(connection, subject, deadline))
    except ArgumentError:  # a service of before timings of dynamic sizes
        if is_static(shape.arg_spec):
            raise
        return ""


def best(timings: Sequence[ScheduleTiming]) -> str:
    """The schedule to take for all sizes that were timed."""
    return winner_of_sizes((each.sizes, each.schedule, each.nanoseconds) for each in timings)


def is_static(arg_spec: str) -> bool:
    """Whether all sizes of the arguments are known."""
    return all(dim.isdigit() for tensor in parse_arg_spec(arg_spec) for dim in tensor.dims)


@lru_cache(maxsize=1)
def device_name() -> str:
    """Model of the processor and threads of a kernel, such as ``AMD EPYC 9B14/2``."""
    try:
        match = _MODEL.search(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        match = None
    model = match[1] if match else platform.machine() or "unknown"
    printable = "".join(letter for letter in " ".join(model.split()) if letter.isprintable())
    return f"{printable[:180] or 'unknown'}/{thread_count(os.environ)}"
