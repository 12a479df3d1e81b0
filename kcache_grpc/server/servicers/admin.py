"""``kcache.v1.Admin``: converts requests to values, and values to responses, for administrators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from google.protobuf import duration_pb2

from kcache_grpc._proto.kcache.v1 import admin_pb2 as pb
from kcache_grpc._proto.kcache.v1 import admin_pb2_grpc, common_pb2
from kcache_grpc.errors import ArgumentError, PermissionDenied
from kcache_grpc.model.wire import target_match_from_proto
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.translate import timestamp
from kcache_grpc.service.admin.running_service import Admin
from kcache_grpc.service.lifecycle.garbage_collection import MIN_AGE, CollectionOptions, Report
from kcache_grpc.service.lifecycle.verify import Counts, Fault
from kcache_grpc.service.values import SHARED, Caller
from kcache_grpc.storage.contract.lifecycle import EVICT, REFUSE, Quota

_RESOURCES = {
    pb.QUOTA_RESOURCE_KERNELS: "kernels",
    pb.QUOTA_RESOURCE_MAPPINGS: "mappings",
    pb.QUOTA_RESOURCE_ARTIFACT_BYTES: "artifact_bytes",
    pb.QUOTA_RESOURCE_SPECS: "specs",
    pb.QUOTA_RESOURCE_CACHE_BYTES: "cache_bytes",
    pb.QUOTA_RESOURCE_ASSERTION_BYTES: "assertion_bytes",
}
_POLICIES = {pb.QUOTA_POLICY_EVICT: EVICT, pb.QUOTA_POLICY_REFUSE: REFUSE}
_SUBJECTS = {
    pb.PIN_SUBJECT_KERNEL: "kernel",
    pb.PIN_SUBJECT_MAPPING: "mapping",
    pb.PIN_SUBJECT_SPEC: "spec",
}
#: The role of principals that may administer a server with tokens.
ADMIN_ROLE = "admin"
_MAX_REASON = 800
#: Seconds: ten thousand years, the most that a Duration may say.
_MOST_AGE = 315_576_000_000
_PAGE, _MOST_PAGE = 100, 1000
#: Peers on the Unix socket, as gRPC names them: its directory admits only the server's user.
_SOCKET = "unix:"


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """``authenticated``: the server has a token, which every call has shown. Else only callers on the Unix
    socket may: any user of the machine reaches a loopback address.
    """

    def __init__(self, admin: Admin, *, authenticated: bool) -> None:
        self._admin = admin
        self._authenticated = authenticated

    async def Collect(  # noqa: N802 - gRPC's names
        self, request: pb.CollectRequest, context: Call
    ) -> AsyncIterator[pb.CollectResponse]:
        """Removes what is stale, unused or above limits."""
        caller = self._caller(request.header, context)
        options = CollectionOptions(
            older_than=_age(request.older_than, "older_than") if request.HasField("older_than") else None,
            max_bytes=request.max_bytes if request.HasField("max_bytes") else None,
            min_age=_age(request.min_age, "min_age") if request.HasField("min_age") else MIN_AGE,
            dry_run=request.dry_run,
        )
        last = Report(caller.namespace, options.dry_run)
        async with aclosing(self._admin.collect(caller, options)) as reports:
            async for last in reports:
                yield _collected(last, done=False)
        yield _collected(last, done=True)

    async def SetQuota(  # noqa: N802
        self, request: pb.SetQuotaRequest, context: Call
    ) -> pb.SetQuotaResponse:
        """Limits a resource."""
        caller = self._caller(request.header, context)
        resource = _known(_RESOURCES, request.resource, "resource")
        usual = REFUSE if resource == "specs" else EVICT
        most = request.most if request.HasField("most") else None
        policy = _known(_POLICIES, request.policy, "policy") if request.policy else usual
        quota = await self._admin.set_quota(caller, resource, most, policy)
        return pb.SetQuotaResponse(quota=None if quota is None else _quota(quota))

    async def ListQuotas(  # noqa: N802
        self, request: pb.ListQuotasRequest, context: Call
    ) -> pb.ListQuotasResponse:
        """All quotas."""
        quotas = await self._admin.list_quotas(self._caller(request.header, context))
        return pb.ListQuotasResponse(quotas=map(_quota, quotas))

    async def Pin(self, request: pb.PinRequest, context: Call) -> pb.PinResponse:  # noqa: N802
        """Pins a kernel, mapping or spec, which protects it from eviction."""
        caller = self._caller(request.header, context)
        subject = _known(_SUBJECTS, request.subject, "subject")
        created = await self._admin.pin(caller, subject, request.digest, _reason(request.reason))
        return pb.PinResponse(created=created)

    async def Unpin(self, request: pb.UnpinRequest, context: Call) -> pb.UnpinResponse:  # noqa: N802
        """Removes a pin."""
        caller = self._caller(request.header, context)
        subject = _known(_SUBJECTS, request.subject, "subject")
        return pb.UnpinResponse(removed=await self._admin.unpin(caller, subject, request.digest))

    async def ListPins(  # noqa: N802
        self, request: pb.ListPinsRequest, context: Call
    ) -> pb.ListPinsResponse:
        """All pins, page by page."""
        pins = await self._admin.list_pins(self._caller(request.header, context))
        most = min(request.page_size or _PAGE, _MOST_PAGE)
        start = _page_start(request.page_token)
        numbers = {name: number for number, name in _SUBJECTS.items()}
        entries = [
            pb.ListPinsResponse.Entry(
                subject=numbers[pin.subject],
                digest=pin.digest,
                reason=pin.reason,
                create_time=timestamp(pin.created_at),
            )
            for pin in pins[start : start + most]
        ]
        more = len(pins) > start + most
        return pb.ListPinsResponse(pins=entries, next_page_token=str(start + most) if more else "")

    async def RaiseEpoch(  # noqa: N802
        self, request: pb.RaiseEpochRequest, context: Call
    ) -> pb.RaiseEpochResponse:
        """Disowns all of a namespace."""
        caller = self._caller(request.header, context)
        return pb.RaiseEpochResponse(epoch=await self._admin.raise_epoch(caller, _reason(request.reason)))

    async def DisownToolchain(  # noqa: N802
        self, request: pb.DisownToolchainRequest, context: Call
    ) -> pb.DisownToolchainResponse:
        """Disowns a toolchain."""
        caller = self._caller(request.header, context)
        changed = await self._admin.disown(
            caller, request.toolchain_digest, _reason(request.reason), request.undo
        )
        return pb.DisownToolchainResponse(changed=changed)

    async def SetTargetMatch(  # noqa: N802
        self, request: pb.SetTargetMatchRequest, context: Call
    ) -> pb.SetTargetMatchResponse:
        """Says what requests get that leave the target match to the namespace."""
        caller = self._caller(request.header, context)
        allowed = target_match_from_proto(request.target_match)
        if allowed is None:
            raise ArgumentError(
                "target_match is TARGET_MATCH_NAMESPACE; use TARGET_MATCH_EXACT or TARGET_MATCH_COMPATIBLE",
                field="target_match",
            )
        return pb.SetTargetMatchResponse(changed=await self._admin.set_compatible_targets(caller, allowed))

    async def SetTrustedRoles(  # noqa: N802
        self, request: pb.SetTrustedRolesRequest, context: Call
    ) -> pb.SetTrustedRolesResponse:
        """Says whose assertions are trusted."""
        caller = self._caller(request.header, context)
        changed = await self._admin.set_trusted_roles(caller, request.roles)
        return pb.SetTrustedRolesResponse(changed=changed)

    async def Verify(  # noqa: N802
        self, request: pb.VerifyRequest, context: Call
    ) -> AsyncIterator[pb.VerifyResponse]:
        """Checks what is stored."""
        caller = self._caller(request.header, context)
        sample = None if request.all else request.sample
        events = self._admin.verify(
            caller,
            sample,
            compile=not request.skip_compile,
            repair=request.repair,
            confirmed=request.confirm_implausible,
        )
        async with aclosing(events) as results:
            async for event in results:
                yield _verified(event)

    def _caller(self, header: common_pb2.RequestHeader, context: Call) -> Caller:
        return administrator(header, context, authenticated=self._authenticated, what="Admin")


def administrator(
    header: common_pb2.RequestHeader, context: Call, *, authenticated: bool, what: str
) -> Caller:
    """The caller. Raises ``PermissionDenied`` if it is no administrator; the message names ``what``.

    With tokens, administrators have the shared token, or that of a principal with ``ADMIN_ROLE``.
    """
    caller = context.caller(header)
    if not authenticated and not caller.peer.startswith(_SOCKET):
        raise PermissionDenied(
            f"this server has no token: {what} is served on its Unix socket only (address unix:PATH); "
            "start the server with --token-file to administer it over TCP"
        )
    if authenticated and caller.principal != SHARED and caller.principal.role != ADMIN_ROLE:
        raise PermissionDenied(
            f"{caller.principal.name} may not: {what} needs the token of the server (--token-file), or that"
            f" of a principal with the role {ADMIN_ROLE!r}"
        )
    return caller


def _collected(report: Report, *, done: bool) -> pb.CollectResponse:
    return pb.CollectResponse(
        rows=report.rows,
        blobs=report.blobs,
        blob_bytes=report.blob_bytes,
        unmet=report.unmet if done else [],
        done=done,
    )


def _quota(quota: Quota) -> pb.Quota:
    numbers = {name: number for number, name in _RESOURCES.items()}
    policies = {name: number for number, name in _POLICIES.items()}
    return pb.Quota(
        resource=numbers[quota.resource], most=quota.most, policy=policies[quota.policy], used=quota.used
    )


def _verified(event: Fault | Counts) -> pb.VerifyResponse:
    match event:
        case Fault():
            fault = pb.VerifyResponse.Fault(
                subject=event.subject, digest=event.digest, problem=event.problem, action=event.action
            )
            return pb.VerifyResponse(fault=fault)
        case Counts():
            counts = pb.VerifyResponse.Counts(
                kernels=event.kernels,
                compiled=event.compiled,
                mappings=event.mappings,
                blobs=event.blobs,
                faults=event.faults,
                repaired=event.repaired,
                withheld=event.withheld,
            )
            return pb.VerifyResponse(counts=counts)


def _known(names: Mapping[Any, str], number: int, field: str) -> str:
    name = names.get(number)
    if name is None:
        raise ArgumentError(f"{field} is not set, or not known to this version", field=field)
    return name


def _age(duration: duration_pb2.Duration, field: str) -> float:
    """In seconds."""
    age = duration.seconds + duration.nanos / 1e9
    if not 0 <= age <= _MOST_AGE:
        raise ArgumentError(f"{field} is {age:g} s: an age is from 0 to {_MOST_AGE:g} s", field=field)
    return age


def _reason(text: str) -> str:
    if len(text.encode()) > _MAX_REASON:
        raise ArgumentError(f"reason is longer than {_MAX_REASON} bytes", field="reason")
    return text


def _page_start(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        raise ArgumentError("page_token is not one that this method gave", field="page_token")
    return int(token)
