"""``kcache doctor``: is this installation, and the service that it uses, in order?

A check never raises; it fails with advice.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.server_extra import how_to_install, missing_extra

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Health = Annotated[
    bool, typer.Option("--health", help="Only ask the service whether it serves: a probe for containers.")
]
Db = Annotated[str | None, typer.Option(envvar="KCACHE_DB", help="Store to check too.")]
Objects = Annotated[
    str | None, typer.Option(envvar="KCACHE_OBJECTS", help="Object store of that store, if it has one.")
]
_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("failed", "bold red"),
    "skipped": ("-", ""),
}
_OLDEST_PYTHON = (3, 10)
_HEALTH_SECONDS = 4.0
#: HealthCheckResponse with status SERVING.
_SERVING = b"\x08\x01"
_LOW_DISK = 1 << 30


def doctor(
    health: Health = False,
    db: Db = None,
    objects: Objects = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Check the installation, cache directory, store and service. Exits with 1 if a check fails."""
    service = Service(addr, namespace, token_file, tls, timeout, cache_dir)
    checks = [_health(service)] if health else _everything(service, db, objects)
    failed = [check for check in checks if check.state == "failed"]
    described = {"healthy": not failed, "checks": [asdict(check) for check in checks]}
    output.show(described, json, lambda: _table(described["checks"]))
    if failed:
        raise typer.Exit(exit_codes.ERROR)


class _Checks:
    """A line for each check, with its advice below."""

    def __init__(self, checks: Any) -> None:
        self._found = checks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        states = max(len(_MARKS[check["state"]][0]) for check in self._found)
        names = max(len(check["name"]) for check in self._found)
        for check in self._found:
            mark, style = _MARKS[check["state"]]
            head = Text.assemble(
                " ", (mark.ljust(states), style), "  ", (check["name"].ljust(names), "bold"), "  "
            )
            yield from output.hanging(head, check["detail"], options.max_width)
            if check["advice"]:
                yield from output.hanging(Text(" " * len(head)), check["advice"], options.max_width, "bold")


def _table(checks: Any) -> Any:
    return _Checks(checks)


@dataclass(frozen=True)
class Check:
    """``state`` is ok, warning, failed or skipped."""

    name: str
    state: str
    detail: str
    advice: str = ""


@dataclass(frozen=True)
class Service:
    """The options that name a service, in the order of ``options.connect``."""

    addr: str | None
    namespace: str | None
    token_file: Path | None
    tls: str | None
    timeout: float | None
    cache_dir: Path | None

    def asked(self) -> tuple[str | None, str | None, Path | None, str | None, float | None, Path | None]:
        """For ``options.connect``; a check does not wait for long."""
        timeout = self.timeout or 20.0
        return (self.addr, self.namespace, self.token_file, self.tls, timeout, self.cache_dir)


def _everything(service: Service, db: str | None, objects: str | None = None) -> list[Check]:
    """All checks, in order."""
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", _python),
        ("packages", _packages),
        ("server extra", _extra),
        ("cpu", _cpu),
        ("threads", _threads),
        ("linker", _linker),
        ("workers", _workers),
        ("cache directory", lambda: _cache_directory(service)),
        ("embedded store", lambda: _embedded_store(service)),
    ]
    asked: list[tuple[str, Callable[[], Check]]] = [
        ("health", lambda: _health(service)),
        ("service", lambda: _service(service)),
    ]
    try:
        stored = store_checks(db, objects)
    except Exception as error:  # noqa: BLE001 - as in ``_guarded``
        stored = [Check("store", "failed", str(error) or type(error).__name__)]
    return [
        *(_guarded(name, check) for name, check in checks),
        *stored,
        *(_guarded(name, check) for name, check in asked),
    ]


def _health(service: Service) -> Check:
    """Asks ``grpc.health.v1.Health`` with its own bytes: the client has no stubs of it."""
    if service.addr is None:
        return Check("health", "skipped", "no service is named; set KCACHE_ADDR or --addr")
    try:
        answer = _ask_health(service)
    except KcacheError as error:
        return Check("health", "failed", str(error), f"start a server: kcache serve --listen {service.addr}")
    if answer != _SERVING:
        return Check("health", "failed", f"{service.addr} answers, but does not serve now")
    return Check("health", "ok", f"{service.addr} serves")


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a doctor that dies of the disease is no help
        return Check(name, "failed", f"{type(error).__name__}: {error}" if not str(error) else str(error))


def _ask_health(service: Service) -> bytes:
    import grpc

    from kcache_grpc.client.address import parse_endpoint
    from kcache_grpc.errors import from_transport

    assert service.addr is not None
    tls = True if service.tls == "system" else service.tls
    endpoint = parse_endpoint(service.addr, tls=tls, token=None)
    channel = (
        grpc.insecure_channel(endpoint.target)
        if endpoint.roots is None
        else grpc.secure_channel(endpoint.target, grpc.ssl_channel_credentials(endpoint.roots or None))
    )
    with channel:
        open_call: Any = channel.unary_unary
        call = open_call("/grpc.health.v1.Health/Check", request_serializer=None, response_deserializer=None)
        try:
            return bytes(call(b"", timeout=min(service.timeout or _HEALTH_SECONDS, _HEALTH_SECONDS)))
        except grpc.RpcError as error:
            code = error.code()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
            details = error.details()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
            raise from_transport(str(code.name), f"{service.addr} does not answer: {details}") from error  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Check("python", "failed", version, "use Python 3.10 or later")
    return Check("python", "ok", f"{version} on {sys.platform} {platform.machine()}")


def _packages() -> Check:
    names = ("kcache-grpc", "grpcio", "protobuf", "numpy", "cffi")
    return Check("packages", "ok", ", ".join(f"{name} {metadata.version(name)}" for name in names))


def _extra() -> Check:
    missing = missing_extra()
    if len(missing) > 1 and "torch_mlir" in missing:
        return Check("server extra", "skipped", "not installed: this is a client")
    if missing:
        advice = how_to_install()
        return Check("server extra", "failed", f"incomplete: {', '.join(missing)} is missing", advice)
    wrong = [
        f"{name} is {metadata.version(name)} instead of {version}"
        for name, version in _exact_pins()
        if metadata.version(name) != version
    ]
    if wrong:
        advice = f"kernels would have their own keys; {how_to_install()}"
        return Check("server extra", "failed", "; ".join(wrong), advice)
    return Check("server extra", "ok", ", ".join(f"{name} {version}" for name, version in _exact_pins()))


def _exact_pins() -> list[tuple[str, str]]:
    """Requirements of the server extra that allow one version only."""
    pins: list[tuple[str, str]] = []
    for requirement in metadata.requires("kcache-grpc") or []:
        match = re.match(r"([\w.-]+)==([\w.+]+)\s*;.*extra == ['\"]server['\"]", requirement)
        if match:
            pins.append((match[1], match[2]))
    return pins


def _cpu() -> Check:
    from kcache_grpc.model.target import host_target
    from kcache_grpc.runtime.cpu.library import bf16_target

    try:
        target, narrow = str(host_target()), bf16_target()
        faster = "" if narrow == "host" else f", and for {narrow}, whose products of bf16 are faster"
        return Check("cpu", "ok", f"runs kernels for {target}{faster}")
    except ArgumentError as error:
        return Check("cpu", "warning", str(error))


def _threads() -> Check:
    from kcache_grpc.runtime.cpu.threads import thread_count

    return Check("threads", "ok", f"{thread_count(os.environ)} for launches of kernels")


def _linker() -> Check:
    if missing_extra():
        return Check("linker", "skipped", "needed by servers only")
    linker = next((path for name in ("ld.lld", "ld") if (path := shutil.which(name))), None)
    if linker is None:
        advice = "install binutils, or run: pip install 'kcache-grpc[cross]'"
        return Check("linker", "warning", "neither ld.lld nor ld is on PATH", advice)
    return Check("linker", "ok", linker)


def _workers() -> Check:
    if missing_extra():
        return Check("workers", "skipped", "needed by servers only")
    from kcache_grpc.worker.containment import missing_here

    missing = missing_here()
    if not missing:
        return Check("workers", "ok", "confined: they reach no network and no files but the installation's")
    advice = (
        "a program that takes over a parser can do more than compute; use Linux 6.7 or later with Landlock"
    )
    return Check("workers", "warning", f"this kernel does not provide {', '.join(missing)}", advice)


def _cache_directory(service: Service) -> Check:
    from kcache_grpc.client.config import from_environment

    directory = from_environment(service.addr, cache_dir=service.cache_dir).cache_dir
    if not directory.exists():
        return Check("cache directory", "ok", f"{directory} will be made at first use")
    status = directory.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        advice = f"nothing is kept on disk; run: chmod 700 {directory}"
        return Check("cache directory", "warning", f"{directory} is not only yours", advice)
    free = shutil.disk_usage(directory).free
    if free < _LOW_DISK:
        return Check("cache directory", "warning", f"{directory} has {free >> 20} MiB left")
    return Check("cache directory", "ok", f"{directory}, {free >> 30} GiB free")


def _embedded_store(service: Service) -> Check:
    """That of the service that kcache starts where none is named, or where the named one is away."""
    from kcache_grpc.cli.commands.cache import check_embedded_store
    from kcache_grpc.client.config import from_environment

    directory = from_environment(service.addr, cache_dir=service.cache_dir).cache_dir
    return Check("embedded store", *check_embedded_store(directory))


def store_checks(db: str | None, objects: str | None) -> list[Check]:
    """What is found out about a store."""
    if db is None:
        return [Check("store", "skipped", "no store is named; set KCACHE_DB or --db")]
    if missing_extra():
        return [Check("store", "skipped", "needs the server extra")]
    from kcache_grpc.cli.operate.stores import settings, signing_key
    from kcache_grpc.model.signing import Signer
    from kcache_grpc.storage.examination import examine

    config = settings(db)
    key = signing_key(config)
    key_id = b"" if key is None else Signer.from_file(key).key_id
    findings = examine(config.db, key_id, objects)
    return [Check(_named(each.name), each.state, each.detail, each.advice) for each in findings]


def _named(finding: str) -> str:
    return finding if finding == "store" else f"store: {finding}"


def _service(service: Service) -> Check:
    if service.addr is None and missing_extra():
        advice = f"name a service with KCACHE_ADDR, or {how_to_install()}"
        return Check("service", "warning", "this client has no service", advice)
    if service.addr is None:
        return Check("service", "ok", "none is named: kcache starts one for you")
    with o.connect(*service.asked()) as client:
        stats = client.stats()
    contents = f"{output.count(stats.specs, 'spec')} and {output.count(stats.kernels, 'kernel')}"
    return Check("service", "ok", f"{service.addr} has {contents}")
