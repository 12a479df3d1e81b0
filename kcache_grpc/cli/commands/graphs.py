"""``kcache lookup``, ``show`` and ``stats``: what the cache knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import NotFound

if TYPE_CHECKING:
    from kcache_grpc import KernelSummary, Saving, Spec, Stats

#: How a spec's text looks on a terminal.
_STYLES = {r"(?m)^(?:kcache\.spec.*|arg|return)": "bold", r"%\d+|\ba\d+\b": "cyan", r" : .*": "green"}

Key = Annotated[int, typer.Argument(metavar="KEY", help="From 1.")]


def lookup(
    file: o.ProgramFile,
    format: o.Format = None,
    numerics: o.Numerics = "default",
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Say under which key a program's graph is stored; nothing is stored or compiled.

    NotFound when it is not.
    """
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        spec = client.lookup(o.read_file(file), format=format, numerics=numerics)
    if spec is None:
        raise NotFound(f"the graph of {file} is not stored (numerics {numerics})")
    described = _described(spec)
    output.show(described, json, lambda: output.pairs(described))


def show(
    key: Key,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Print the canonical text that is stored under a key, and which kernels it has."""
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        spec, kernels = client.retrieve(key), client.kernels(key)
    if spec is None:
        raise NotFound(f"key {key} was never given", key=str(key))
    listed = [_listed(kernel) for kernel in kernels]
    output.show(_described(spec) | {"text": spec.text, "kernels": listed}, json, lambda: _page(spec, listed))


def stats(
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Print the counters of a namespace at the service, and those of this machine's clients."""
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        counted = client.stats()
    counters: dict[str, Any] = asdict(counted) | {"hit_ratio": counted.hit_ratio}
    del counters["client"]
    counters["savings"] = list(map(_plain, counted.savings))
    counters["local_savings"] = list(map(_plain, counted.local_savings))
    output.show(counters, json, lambda: _stats_page(counted))


def _stats_page(counted: Stats) -> Group:
    """The counters by tier and by the period that they are of."""
    asked = counted.hits + counted.compiles
    service = {
        "hits": counted.hits,
        "compiles": counted.compiles,
        "hit_ratio": _ratio(counted.hits, asked),
        "seconds_saved": counted.seconds_saved,
        "blob_hits": counted.blob_hits,
        "blob_seconds_saved": counted.blob_seconds_saved,
    }
    names = (
        "specs",
        "mappings",
        "kernels",
        "remembered_failures",
        "artifacts",
        "artifact_bytes",
        "blobs",
        "blob_bytes",
        "assertions",
        "assertion_bytes",
        "assertion_conflicts",
        "assertions_quarantined",
    )
    running = {name: getattr(counted, name) for name in ("programs_parsed", "memory_hits", "audit_dropped")}
    pages = {
        "service, since the namespace was created": service,
        "service, stored now (mappings, kernels, failures and assertions: of the present epoch)": {
            name: getattr(counted, name) for name in (*names, "audit_events")
        },
        "service, since it started": running | _bypasses(counted.bypasses),
    }
    tables = {
        "compile time saved at the service, by caller": counted.savings,
        "compile time saved to clients with this cache directory, by caller": counted.local_savings,
    }
    if counted.local:
        pages[f"clients with this cache directory, since {counted.local['since']}"] = _local(counted)
    # Not as the title of a table, which is as narrow as the table is.
    parts: list[Any] = [part for title, values in pages.items() for part in (title, output.pairs(values))]
    for title, savings in tables.items():
        parts += [title, output.rows(list(map(_saved, savings)))] if savings else []
    return Group(*parts)


def _plain(saving: Saving) -> dict[str, Any]:
    """As JSON."""
    return asdict(saving) | {"last": saving.last and saving.last.isoformat()}


def _saved(saving: Saving) -> dict[str, Any]:
    return {
        "actor": saving.actor or "-",
        "job": saving.job or "-",
        "hits": saving.hits,
        "seconds saved": f"{saving.seconds_saved:.3f}",
        "last": "-" if saving.last is None else f"{saving.last:%Y-%m-%d %H:%M:%S}",
    }


def _bypasses(counts: Mapping[str, int]) -> dict[str, int]:
    return {f"bypass_{reason}": count for reason, count in counts.items()}


def _local(counted: Stats) -> dict[str, Any]:
    totals = counted.local
    memory, disk, remote, compiled, preloaded = (
        int(totals[f"{origin}_kernels"]) for origin in ("memory", "disk", "remote", "compiled", "preloaded")
    )
    hits = memory + disk + remote + preloaded
    return {
        "hits_in_memory": memory,
        "hits_in_preloaded_bundles": preloaded,
        "hits_on_disk": disk,
        "hits_at_the_service": remote,
        "compiles": compiled,
        "hit_ratio": _ratio(hits, hits + compiled),
        "seconds_saved": round(sum(counted.local_seconds_saved.values()), 3),
        **{f"seconds_saved_{origin}": round(s, 3) for origin, s in counted.local_seconds_saved.items()},
        **_bypasses(counted.local_bypasses),
    }


def _ratio(hits: int, asked: int) -> str:
    return f"{hits / asked:.1%}" if asked else "-"


def _described(spec: Spec) -> dict[str, Any]:
    return {
        "key": spec.key,
        "digest": spec.digest.hex(),
        "numerics": spec.numerics,
        "canonicalizer": spec.canonicalizer,
        "created": spec.created.isoformat(),
        "bytes": len(spec.text.encode()),
    } | ({} if spec.current_key == spec.key else {"current_key": spec.current_key})


def _listed(kernel: KernelSummary) -> dict[str, Any]:
    """What tells it from the others of its key."""
    return {
        "kernel_digest": kernel.digest.hex(),
        "arg_spec": kernel.arg_spec,
        "guard": kernel.guard,
        "target": str(kernel.target),
        "options": str(kernel.options),
        "toolchain": kernel.toolchain_digest.hex(),
        "created": kernel.created.isoformat(),
        "compile_seconds": kernel.compile_seconds,
    }


def _for_people(kernel: dict[str, Any]) -> dict[str, Any]:
    """What fits a line; --json has the rest."""
    return {
        "kernel": kernel["kernel_digest"][:12],
        "arg_spec": kernel["arg_spec"],
        "guard": kernel["guard"] or None,
        "target": kernel["target"],
        "compiled": kernel["created"][:19],
    }


def _page(spec: Spec, kernels: list[dict[str, Any]]) -> Any:
    from rich.console import Group
    from rich.text import Text

    text = Text(spec.text.rstrip("\n"), no_wrap=True, overflow="ignore")
    for pattern, style in _STYLES.items():
        text.highlight_regex(pattern, style)
    if not kernels:
        return Group(output.pairs(_described(spec)), "", text)
    return Group(output.pairs(_described(spec)), "", text, "", output.rows(list(map(_for_people, kernels))))
