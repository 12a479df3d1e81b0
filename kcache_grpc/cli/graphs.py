"""``kcache lookup``, ``show`` and ``stats``: what the cache knows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import NotFound

if TYPE_CHECKING:
    from kcache_grpc import Spec

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
    """Print the canonical text that is stored under a key."""
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        spec = client.retrieve(key)
    if spec is None:
        raise NotFound(f"key {key} was never given", key=str(key))
    output.show(_described(spec) | {"text": spec.text}, json, lambda: _page(spec))


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
    }


def _page(spec: Spec) -> Any:
    from rich.console import Group
    from rich.text import Text

    text = Text(spec.text.rstrip("\n"), no_wrap=True, overflow="ignore")
    for pattern, style in _STYLES.items():
        text.highlight_regex(pattern, style)
    return Group(output.pairs(_described(spec)), "", text)
