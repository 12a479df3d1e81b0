"""Records of source graphs: all that a later process needs to run a graph without tracing it.

A record is UTF-8 JSON: the metadata of AOTAutograd's runtime wrappers, and for the forward and the backward
graph a plan with the text of its programs. It holds no weights, no names of the user's code and no kernels;
those come from the service, by the digests of the programs.

``RecordStore`` keeps them in a directory of this user, and at the service.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, cast

from kcache_grpc.caches.disk import OnDiskCache
from kcache_grpc.client.client import Client
from kcache_grpc.errors import CacheError, KcacheError
from kcache_grpc.integrations.torch.dynamo.aot.aot_record import RecordedResult, decode_result, encode_result
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord, NotRecordable
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import log
from kcache_grpc.integrations.torch.dynamo.lowering.plan import (
    Plan,
    PlanError,
    Program,
    decode_plan,
    encode_plan,
)
from kcache_grpc.model.program import Program as SentProgram
from kcache_grpc.model.program import ProgramFormat

#: Increased when the meaning of a record changes.
FORMAT = 3
#: Programs whose text is longer, in bytes, are not recorded: a record would not be small.
_MOST_TEXT = 64 << 20
#: The directory below the client's cache directory.
_DIRECTORY = "torch-sources"


@dataclass(frozen=True)
class Record:
    """``plans``: of "inference", or of "forward" and "backward"."""

    result: RecordedResult
    plans: Mapping[str, Plan]
    #: Digests, in hex, of the toolchains of the kernels: another one may support other operators.
    toolchains: tuple[str, ...] = ()

    @property
    def program_digests(self) -> tuple[bytes, ...]:
        """Digests of the programs of all plans, each once."""
        programs = [program for plan in self.plans.values() for program in plan.programs]
        return tuple(dict.fromkeys(map(digest_of, programs)))


def digest_of(program: Program) -> bytes:
    """The program digest, 32 bytes."""
    return SentProgram(ProgramFormat.TORCH, program.text).digest


def encode_record(entry: Any, plans: Mapping[str, Plan], toolchains: Iterable[str] = ()) -> bytes:
    """Raises ``NotRecordable`` where a later process could not do the same, with the reason."""
    try:
        graphs = {kind: encode_graph(plan) for kind, plan in sorted(plans.items())}
    except PlanError as error:
        raise NotRecordable(str(error)) from error
    data = {
        "format": FORMAT,
        "aot": encode_result(entry),
        "graphs": graphs,
        "toolchains": sorted(set(toolchains)),
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def encode_graph(plan: Plan) -> dict[str, Any]:
    """A plan and its programs as JSON values. Raises ``PlanError``."""
    return {"plan": encode_plan(plan), "programs": [_encode_program(program) for program in plan.programs]}


def _encode_program(program: Program) -> dict[str, Any]:
    text = base64.b64encode(zlib.compress(program.text, 6)).decode()
    return {
        "text": text,
        "dynamic": program.dynamic,
        "device": program.device,
        "bound": list(program.bound),
    }


def decode_record(body: bytes) -> Record:
    """Raises ``InvalidRecord`` for bytes that are no record of this version."""
    try:
        data = json.loads(body)
        if data["format"] != FORMAT:
            raise InvalidRecord(f"the record has format {data['format']}, this version reads {FORMAT}")
        result = decode_result(data["aot"])
        plans = {str(kind): decode_graph(graph) for kind, graph in data["graphs"].items()}
        toolchains = tuple(map(str, data["toolchains"]))
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        PlanError,
        zlib.error,
    ) as error:
        if isinstance(error, InvalidRecord):
            raise
        raise InvalidRecord(f"not a record: {type(error).__name__}: {error}") from error
    if set(plans) != ({"forward", "backward"} if result.has_backward else {"inference"}):
        raise InvalidRecord(f"the record has the graphs {', '.join(plans)}")
    return Record(result, plans, toolchains)


def decode_graph(data: Any) -> Plan:
    """The plan of ``encode_graph``. Raises ``PlanError``, ``InvalidRecord``, or as other JSON values do."""
    programs = [_decode_program(program) for program in cast("Sequence[Any]", data["programs"])]
    return decode_plan(data["plan"], programs)


def _decode_program(data: Any) -> Program:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(base64.b64decode(data["text"], validate=True), _MOST_TEXT)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise InvalidRecord("the text of a program is cut off or too long")
    if data["device"] not in ("cpu", "cuda"):
        raise InvalidRecord(f"a program is for the device {data['device']!r}")
    return Program(text, bool(data["dynamic"]), data["device"], _positions(data["bound"]))


def _positions(data: Sequence[Any]) -> tuple[int, ...]:
    """Indices in ascending order."""
    if any(type(index) is not int or index < 0 for index in data) or sorted(set(data)) != list(data):
        raise InvalidRecord(f"{data!r} are no positions of bound inputs")
    return tuple(data)


class StoredRecord(NamedTuple):
    """A record's bytes, and the tier that had it: "disk" or "remote"."""

    body: bytes
    origin: str


class RecordStore:
    """Records by source digest. A tier that fails is skipped: a record only saves time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._disk: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=client.cache_dir / _DIRECTORY)

    def find(self, digest: bytes) -> StoredRecord | None:
        """The record of a source graph, or ``None``. One of the service is kept on disk from then on.

        An embedded service that does not run is started in a thread, and not asked: its records are those of
        this user, which are on disk, and the graph is traced meanwhile.
        """
        body = self._on_disk(digest)
        if body is not None:
            return StoredRecord(body, "disk")
        if self._client.start_service():
            return None
        try:
            assertion = self._client.get_assertion(digest)
        except KcacheError as error:
            log.info("records at the service: %s", error)
            return None
        if assertion is None:
            return None
        self._keep(digest, assertion.record)
        return StoredRecord(assertion.record, "remote")

    def add(self, digest: bytes, body: bytes, programs: Sequence[bytes]) -> None:
        """Keep a record, and assert it at the service. The first record of a digest stays."""
        self._keep(digest, body)
        torch: Any = import_module("torch")
        try:
            self._client.put_assertion(digest, body, programs, toolchain=f"torch {torch.__version__}")
        except KcacheError as error:
            log.info("records at the service: %s", error)

    def dispute(self, digest: bytes, stored: StoredRecord, observed: bytes) -> None:
        """Take a record out of use: tracing the graph again gave ``observed``."""
        reason = "tracing the source graph gave another record"
        try:
            self._disk.set_aside(digest, stored.body)
            record, other = (hashlib.sha256(body).digest() for body in (stored.body, observed))
            self._client.dispute_assertion(digest, record, other, reason)
        except (CacheError, OSError, KcacheError) as error:
            log.info("a disputed record: %s", error)

    def _on_disk(self, digest: bytes) -> bytes | None:
        try:
            return self._disk.get(digest)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
            return None

    def _keep(self, digest: bytes, body: bytes) -> None:
        try:
            self._disk.insert(digest, body)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
