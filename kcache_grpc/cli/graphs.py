"""``kcache lookup``, ``show`` and ``stats``: what the cache knows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import NotFound

if TYPE_CHECKING:
    from kcache_grpc import KernelSummary, Spec

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
    """Print the counters of a namespace."""
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        counters = asdict(client.stats())
    del counters["client"]
    output.show(counters, json, lambda: output.pairs(counters))


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
