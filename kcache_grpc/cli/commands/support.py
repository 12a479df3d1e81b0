"""``kcache support``: what compiles, and what of a program would not."""

from __future__ import annotations

import json as json_text
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.errors import ArgumentError, Unavailable, UnsupportedOp
from kcache_grpc.server_extra import how_to_install

if TYPE_CHECKING:
    from kcache_grpc import Client, Support
    from kcache_grpc.model.program import Program
    from kcache_grpc.programs.source import Source

_TABLE = Path(__file__).with_name("support_table.json")
_ZIP = b"PK\x03\x04"

OptionalFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="StableHLO, linalg or Torch dialect (text or bytecode), an ONNX model, a graph, or a .pt2 of "
        "torch.export.save; - reads standard input. Without it: the table of ops.",
        show_default=False,
    ),
]
#: That it may take where the command line does not say.
_SECONDS = 600.0

EPILOG = (
    "Exit code 0: all of FILE compiles. 1: something is rejected. FILE is compiled by the service "
    "of --addr or KCACHE_ADDR, without one here in its own process, for all that is rejected, not for "
    "the first only; nothing is kept. "
    "A .pt2 file is loaded by PyTorch: look at those only that you trust."
)


def support(
    file: OptionalFile = None,
    format: o.Format = None,
    target: o.TargetName = "host",
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
    """Say of FILE each op that would be rejected, where, and why; without FILE, list what compiles.

    The list has what tests ran: each op with the dtypes whose results were compared on a CPU,
    and those that were compiled for a GPU.
    """
    if file is None:
        table = json_text.loads(_TABLE.read_text())
        output.show(table, json, lambda: _listed(table))
        return
    if not addr:
        report = check(file, format, target, numerics, timeout or _SECONDS)
    else:
        with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
            report = check(file, format, target, numerics, timeout or _SECONDS, client)
    output.show(report, json, lambda: _page(file, report))
    if report["rejected"]:
        raise typer.Exit(exit_codes.ERROR)


def check(
    file: str,
    format: str | None,
    target: str,
    numerics: str,
    timeout: float,
    client: Client | None = None,
) -> dict[str, Any]:
    """What ``--json`` prints of a file, by the service of ``client``, without one by its own worker."""
    from kcache_grpc.model.target import parse_target

    target_name = str(parse_target(target))
    o.compile_options(numerics, 1, "")
    try:
        source = _read(file, format)
    except UnsupportedOp as error:  # what PyTorch's importer does not read
        where = [error.metadata["location"]] if "location" in error.metadata else []
        rejected: list[dict[str, Any]] = [
            {"op": error.op, "reason": error.message, "count": 1, "where": where}
        ]
        note = "the program was not looked at beyond this: there may be more"
        report = {"operations": None, "supported": None, "rejected": rejected, "note": note}
        return {"format": "torch", "target": target_name, "numerics": numerics, "service": None, **report}
    program, origins = source.program, source.origins
    described: dict[str, str] = {"format": program.format.value, "target": target_name, "numerics": numerics}
    if client is None:
        import asyncio

        report = asyncio.run(_asked(program, described, timeout))
    else:
        body, form = bytes(program.body), program.format.value
        report = _of_service(client.support(body, form, target, numerics=numerics))
    if origins is not None:
        report["rejected"] = [
            rejection | {"where": origins.locations(rejection["where"])} for rejection in report["rejected"]
        ]
    return {**described, "service": None if client is None else client.service, **report}


def _read(file: str, format: str | None) -> Source:
    """The program, and where its operations came from."""
    from kcache_grpc.programs.source import read_one

    content = o.read_file(file)
    if isinstance(content, Path) and format in (None, "torch") and _is_zip(content):
        return read_one(_exported(content), format)
    return read_one(content, format)


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as opened:
            return opened.read(len(_ZIP)) == _ZIP
    except OSError:
        return False  # whoever reads it says so


def _exported(path: Path) -> Any:
    """The ``ExportedProgram`` of a .pt2 file."""
    try:
        load: Any = import_module("torch.export").load
    except ImportError as error:
        raise ArgumentError(
            f"{path} is an exported PyTorch program, which needs PyTorch: pip install 'kcache-grpc[torch]'"
        ) from error
    try:
        return load(path)
    except Exception as error:  # code of another project
        raise ArgumentError(f"{path} is no program of torch.export.save: {error}") from error


def _of_service(support: Support) -> dict[str, Any]:
    """As a worker of this machine answers."""
    return {
        "operations": support.operations or None,
        "supported": support.supported if support.operations else None,
        "rejected": [
            {"op": each.op, "reason": each.reason, "count": each.count, "where": list(each.locations)}
            for each in support.refusals
        ],
        "note": support.note,
    }


async def _asked(program: Program, header: dict[str, str], timeout: float) -> dict[str, Any]:
    """The answer of a worker, which may crash or hang over the program as a service's may."""
    if any(find_spec(name) is None for name in ("torch_mlir", "llvmlite")):
        raise Unavailable(f"the compiler is not installed here; {how_to_install()}")
    from kcache_grpc.worker.frames import Frame
    from kcache_grpc.worker.process import WorkerProcess, WorkerSettings

    worker = await WorkerProcess.start(WorkerSettings(jobs="kcache_grpc.worker.child.support"))
    try:
        reply = await worker.run(Frame({"type": "support", **header}, (program.body,)), timeout)
    finally:
        await worker.close()
    return dict(reply.header["found"])


def _page(file: str, report: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.markup import escape

    name = "standard input" if file == "-" else Path(file).name
    counted = report["operations"] is not None
    operations = f"{report['supported']} of {report['operations']} operations compile"
    if not counted:
        operations = "rejected" if report["rejected"] else "compiles"
    parts: list[Any] = [
        f"[bold]{escape(name)}[/] ({report['format']}): {operations} for {escape(report['target'])}, "
        f"numerics {escape(report['numerics'])}"
        + (f", at {escape(report['service'])}" if report["service"] else "")
    ]
    if report["rejected"]:
        parts += ["", output.rows([_row(rejection) for rejection in report["rejected"]])]
    if report["note"]:
        parts += ["", f"Note: {escape(report['note'])}."]
    return Group(*parts)


def _row(rejection: dict[str, Any]) -> dict[str, Any]:
    locations = [_location(location) for location in rejection["where"]]
    more = [] if rejection["count"] <= len(locations) or not locations else ["..."]
    return {
        "rejected": rejection["op"] or "the program",
        "times": rejection["count"],
        "where": ", ".join([*locations[:3], *(more or ["..."] * (len(locations) > 3))]) or "-",
        "why": rejection["reason"],
    }


def _location(location: str) -> str:
    """``-:3:8``, which the parser calls its buffer, is line 3."""
    buffer, _, rest = location.partition(":")
    return f"line {rest.partition(':')[0]}" if buffer == "-" and rest else location


def _listed(table: dict[str, Any]) -> Any:
    from rich.console import Group

    rows = [
        {"op": row["op"], **{target: ", ".join(row[target]) or "-" for target in table["targets"]}}
        for row in table["ops"]
    ]
    meanings = [f"{name}: {description}" for name, description in table["targets"].items()]
    return Group(output.rows(rows), "", *meanings, table["note"])
