"""Checks which operations of a program do not compile, by compiling it in a worker; stores nothing."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc.model.program import Program
from kcache_grpc.service.values import Caller, Limits
from kcache_grpc.worker import WorkerPool, codec


@dataclass(frozen=True)
class Refusal:
    """An operation that does not compile; ``op`` is empty where the whole program is meant."""

    op: str
    reason: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """``operations`` is 0 where they could not be counted; ``note`` says what the answer does not cover."""

    operations: int
    supported: int
    refusals: tuple[Refusal, ...]
    note: str


async def check_program(
    pool: WorkerPool, program: Program, target: str, numerics: str, limits: Limits, caller: Caller
) -> Checked:
    """Compiles each operation of a program. Raises what the program's frontend raises."""
    bounds = {
        "program_bytes": limits.program_bytes,
        "operations": limits.operations,
        "region_depth": limits.nesting,
    }
    job = codec.support_job(
        program.body, program.format.value, target, numerics, bounds, limits.compile_seconds
    )
    reply = await pool.compile(job, limits.compile_seconds, lambda _: None, caller.turn)
    report = reply.header["found"]
    refusals = tuple(
        Refusal(refusal["op"], refusal["reason"], refusal["count"], tuple(refusal["where"]))
        for refusal in report["rejected"]
    )
    return Checked(report["operations"] or 0, report["supported"] or 0, refusals, report["note"])
