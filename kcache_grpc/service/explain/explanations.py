"""Answers of ``explain``, put together: pure functions of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_grpc.model.explanation import (
    Difference,
    Explanation,
    FailedBefore,
    MappingOfSpec,
    Neighbor,
    at,
)
from kcache_grpc.model.identity import KernelIdentity
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.service.explain.ingredient_differences import Asked, broken_guard
from kcache_grpc.service.values import KnownGraph
from kcache_grpc.storage.contract.nearby import WEIGHTS, NearKernel
from kcache_grpc.storage.records import FailureRecord, KernelRecord, Namespace

_MAX_MESSAGE = 4000

#: Heaviest ingredient that differs -> the step where the lookup ends.
_STEPS = (
    ("epoch", "EPOCH", "the kernels of its spec belong to earlier epochs of the namespace"),
    ("target", "TARGET", "the kernels of its spec are for other targets"),
    ("toolchain", "TOOLCHAIN", "the kernels of its spec were made by other toolchains"),
    ("options", "OPTIONS", "the kernels of its spec have other options"),
)


@dataclass(frozen=True)
class Request:
    """What is to be explained. ``identity``: the kernel that serves it, or that would be compiled first."""

    namespace: Namespace
    graph: KnownGraph
    identity: KernelIdentity
    numerics: str
    known: bool
    most: int

    @property
    def kernel(self) -> KernelRecord:
        """The kernel, as a store names it."""
        named = self.identity
        return KernelRecord(
            named.digest,
            self.graph.key,
            named.arg_spec,
            named.guard,
            named.target,
            named.options,
            named.toolchain_digest,
        )


def unreadable(program_digest: bytes, failure: FailureRecord) -> Explanation:
    """A program that broke its parser before."""
    return Explanation(
        step="FAILED",
        summary=failed_words(failure),
        program_digest=program_digest,
        program_known=False,
        key=0,
        spec_digest=b"",
        failure=failed_before(failure),
    )


def failed_before(failure: FailureRecord) -> FailedBefore:
    detail = dict(failure.failure.detail)
    message = failure.failure.diagnostic or detail.get("message", "")
    return FailedBefore(
        reason=failure.failure.reason,
        stage=failure.failure.stage,
        message=message[:_MAX_MESSAGE],
        count=failure.count,
        last=at(failure.last_at),
        retry=at(failure.expires_at),
    )


def identity_of(manifest: Manifest) -> KernelIdentity:
    """What a stored kernel is named by."""
    return KernelIdentity(
        manifest.spec_digest,
        manifest.arg_spec,
        manifest.guard,
        str(manifest.target),
        str(manifest.options),
        manifest.toolchain_digest,
    )


def explanation(
    request: Request, step: str, summary: str, mappings: tuple[MappingOfSpec, ...]
) -> Explanation:
    """Return an explanation that ends at ``step``, with the digests and the key of the request."""
    graph, identity = request.graph, request.identity
    return Explanation(
        step=step,
        summary=summary,
        program_digest=graph.program_digest,
        program_known=request.known,
        key=graph.key,
        spec_digest=graph.spec_digest,
        kernel_digest=identity.digest,
        arg_spec=identity.arg_spec,
        guard=identity.guard,
        mappings=mappings,
    )


def with_compatible(explained: Explanation, target: str) -> Explanation:
    """An explanation that names the lower target whose kernel serves the request, or would if allowed."""
    if explained.hit:
        more = f"it is for {target}, which the target of the request includes"
    else:
        more = f"a stored kernel for {target} would serve it if the request allowed compatible_targets"
    return replace(explained, summary=f"{explained.summary}; {more}", compatible_target=target)


def step_of(asked: Asked, near: Sequence[NearKernel]) -> tuple[str, str]:
    """Where the lookup ended, from the nearest kernel: by the heaviest ingredient that differs."""
    if not near:
        return "NO_KERNEL", f"its spec is stored under key {asked.kernel.key}, but no kernel of it is"
    nearest = near[0]
    if nearest.distance == 0:
        return "BYTES_LOST", "its kernel is stored, but bytes of it are lost: the next compile repairs it"
    for name, step, summary in _STEPS:
        if nearest.distance >= WEIGHTS[name]:
            return step, summary
    if broken_guard(asked, nearest) is not None:
        return "GUARD", "no guard of the kernels of its spec holds for these sizes"
    if nearest.distance >= WEIGHTS["arg_spec"]:
        return "SIZES", "the kernels of its spec are for other sizes"
    return "GUARD", "the kernels of its spec have other guards"


def neighbor(near: NearKernel, spec_digest: bytes, reasons: tuple[Difference, ...]) -> Neighbor:
    return Neighbor(
        near.kernel.key,
        spec_digest,
        near.kernel.kernel_digest,
        at(near.created_at),
        near.distance,
        reasons,
    )


def failed_words(failure: FailureRecord) -> str:
    times = "once" if failure.count == 1 else f"{failure.count} times"
    step = "its compile" if failure.failure.stage != "canonicalize" else "reading it"
    retry = at(failure.expires_at)
    return f"{step} failed {times} and is not tried again before {retry:%Y-%m-%d %H:%M:%S} UTC"
