"""``kcache bundle``: bundles out of a service and into it, what they hold, and whether they may be used."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError, PermissionDenied, ResourceExhausted

if TYPE_CHECKING:
    from kcache_grpc.bundle import Bundle, IndexEntry
    from kcache_grpc.bundle.verify import VerifyReport
    from kcache_grpc.client.bundles.reports import UploadReport

BundleFile = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle, such as model.kcb.")]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="KEY",
        help="Identity of a signer to trust, 64 hex digits; again for more. Also: $KCACHE_TRUST, the "
        "pinned identity of the service at --addr, and the signers of bundles that were imported.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="host, or a CPU or GPU by name: there must be kernels for it.",
        autocompletion=o.targets,
    ),
]

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Kernels for this target only, by name; again for more.",
        autocompletion=o.targets,
    ),
]
ServiceTrust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="KEY",
        help="Identity of a signer to trust, 64 hex digits; again for more. Also: the service's own, "
        "and those that it is configured to trust.",
    ),
]


def verify(
    file: BundleFile,
    target: Target = None,
    trust: Trust = None,
    json: o.Json = False,
    addr: o.Addr = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Check every byte and every signature of a bundle. Loads nothing of it and asks no service.

    Exits with 1 if anything is wrong; docs/guide/bundles.md lists the findings.
    """
    described = _verified(file, _target_name(target), _trusted(trust, addr, cache_dir))
    output.show(described, json, lambda: _verify_page(described))
    if described["findings"]:
        raise typer.Exit(exit_codes.ERROR)


def list_entries(file: BundleFile, json: o.Json = False, debug: o.Debug = False) -> None:
    """Show who signed a bundle, when, and its entries. Whether to trust the signer is for verify."""
    from kcache_grpc.bundle import open_bundle

    with open_bundle(file) as bundle:
        described = {**_described(bundle), "entries": [_entry(entry) for entry in bundle.entries]}
    output.show(described, json, lambda: _list_page(described))


def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, such as model.kcb.")],
    keys: Annotated[str | None, typer.Option(metavar="1,2", help="Specs by key.")] = None,
    job: Annotated[str | None, typer.Option(help="What the audit log has of this job.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From then, by the audit log.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before then.")] = None,
    filter: Annotated[
        str | None, typer.Option(help="Audit events that pass (docs/operate/audit.md).")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole namespace.")] = False,
    blobs: Annotated[bool, typer.Option("--blobs", help="Values of RemoteCache, too or alone.")] = False,
    targets: Targets = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Write kernels of the service, and all that they need, to one file that the service signs.

    The file appears whole, or not at all.
    """
    if not (everything or blobs or keys or job or since or until or filter):
        raise ArgumentError(
            "name what to export: --keys, --job, --since, --until, --filter, --all or --blobs"
        )
    with (
        o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client,
        _moving("exported") as tell,
    ):
        report = client.export_bundle(
            out,
            keys=_keys(keys),
            job=job,
            since=since,
            until=until,
            filter=filter,
            targets=targets,
            everything=everything,
            blobs=blobs,
            on_progress=tell,
        )
    described = asdict(report)
    counts = ", ".join(output.count(number, kind) for kind, number in report.entries.items())
    left_out = f"; {report.skipped} could not be read" if report.skipped else ""
    output.show(described, json, lambda: f"{out}: {counts}, {output.count(report.size, 'byte')}{left_out}")


def import_bundle(
    file: BundleFile,
    trust: ServiceTrust = None,
    targets: Targets = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Add the kernels of a bundle to the service. Nothing that is there is overwritten.

    Needs what administration needs: a server with a token, or its Unix socket. Exits with 1 if the service
    rejects the bundle as a whole; entries that it rejects are named with their reasons.
    """
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client, _moving("sent") as tell:
        report = client.upload_bundle(file, trust=trust, targets=targets, on_progress=tell)
    output.show(asdict(report), json, lambda: _import_page(report))


def application() -> typer.Typer:
    """``kcache bundle`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("export")(export)
    app.command("import")(import_bundle)
    app.command("verify")(verify)
    app.command("list")(list_entries)
    return app


def _verified(file: Path, target: str | None, trusted: frozenset[str]) -> dict[str, Any]:
    """The findings of a bundle, also of one that cannot be opened as a bundle."""
    from kcache_grpc.bundle import open_bundle
    from kcache_grpc.bundle.verify import verify_bundle

    try:
        with open_bundle(file) as bundle:
            report = verify_bundle(bundle, trusted=trusted, target=target)
            return {**_described(bundle), "findings": _findings(report)}
    except (ArgumentError, IntegrityError, ResourceExhausted, PermissionDenied) as error:
        return {"file": str(file), "findings": [_unreadable(error)]}


@contextmanager
def _moving(done: str) -> Generator[Callable[[int], None]]:
    """Shows how many bytes have gone, on a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"0 bytes {done}") as status:
        yield lambda count: status.update(f"{count} bytes {done}")


def _keys(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--keys is {text!r}; name keys such as 1,2") from None


def _import_page(report: UploadReport) -> RenderableType:
    counts = f"{len(report.new)} new, {len(report.present)} present, {len(report.rejected)} rejected"
    rejected = [{"kind": item.kind, "name": item.name, "reason": item.reason} for item in report.rejected]
    return Group(counts, output.rows(rejected)) if rejected else counts


def _findings(report: VerifyReport) -> list[dict[str, str]]:
    return [
        {"finding": finding.name, "entry": finding.entry, "message": finding.message}
        for finding in report.findings
    ]


def _unreadable(error: KcacheError) -> dict[str, str]:
    return {"finding": error.metadata.get("finding", "path"), "entry": "", "message": error.message}


def _described(bundle: Bundle) -> dict[str, Any]:
    metadata = bundle.metadata
    return {
        "file": bundle.source,
        "bytes": bundle.size,
        "digest": bundle.digest.hex(),
        "content_digest": bundle.content_digest.hex(),
        "signer": bundle.signer,
        "created": metadata.created.isoformat(),
        "creator_version": metadata.creator_version,
        "namespace": metadata.namespace,
        "epoch": metadata.epoch,
        "selection": metadata.selection,
        "targets": list(metadata.targets),
        "toolchains": [digest.hex() for digest in metadata.toolchain_digests],
        "counts": _counts(bundle),
    }


def _counts(bundle: Bundle) -> dict[str, int]:
    """Entries by kind, of the kinds that there are."""
    counts: dict[str, int] = {}
    for entry in bundle.entries:
        counts[entry.kind.label] = counts.get(entry.kind.label, 0) + 1
    return counts


def _entry(entry: IndexEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind.label,
        "name": entry.name,
        "bytes": entry.size,
        "stored_bytes": entry.stored_size,
        "sha256": entry.sha256.hex(),
        "attributes": dict(entry.attributes),
    }


def _verify_page(described: dict[str, Any]) -> RenderableType:
    findings = described["findings"]
    if not findings:
        counts = ", ".join(output.count(number, kind) for kind, number in described["counts"].items())
        return f"{described['file']}: whole, signed by {described['signer']}, {counts or 'empty'}"
    return Group(f"{described['file']}: {output.count(len(findings), 'finding')}", output.rows(findings))


def _list_page(described: dict[str, Any]) -> RenderableType:
    shown = ("digest", "content_digest", "signer", "created", "namespace", "epoch", "selection", "bytes")
    head = {name: described[name] for name in shown}
    head["targets"] = ", ".join(described["targets"])
    entries = [
        {
            "kind": entry["kind"],
            "name": entry["name"],
            "bytes": entry["bytes"],
            "stored": entry["stored_bytes"],
        }
        for entry in described["entries"]
    ]
    return Group(output.pairs(head), output.rows(entries) if entries else "no entries")


def _target_name(target: str | None) -> str | None:
    from kcache_grpc.model.target import parse_target

    return None if target is None else str(parse_target(target))


def _trusted(trust: list[str] | None, addr: str | None, cache_dir: Path | None) -> frozenset[str]:
    """The signers that a client with these settings trusts, and those of ``--trust``."""
    from kcache_grpc.client.bundles.tier import BundledKernels
    from kcache_grpc.client.cache.totals import Counters
    from kcache_grpc.client.config import from_environment
    from kcache_grpc.client.service_choice import Services
    from kcache_grpc.client.transport.blocking import BlockingIo
    from kcache_grpc.client.trust.pins import read_identities

    config, counters = from_environment(addr, cache_dir=cache_dir), Counters()
    services = Services(config, BlockingIo(), counters)
    return read_identities(trust) | BundledKernels(config, services, counters).trusted()
