"""``kcache support``: what compiles, and what of a program would not."""

from __future__ import annotations

import asyncio
import json as json_text
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exits, output
from kcache_grpc.cli import options as o
from kcache_grpc.errors import ArgumentError, Unavailable, UnsupportedOp

if TYPE_CHECKING:
    from kcache_grpc.model.program import Program

_TABLE = Path(__file__).with_name("support_table.json")
_INSTALL = "pip install 'kcache-grpc[server]'"
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
Seconds = Annotated[float, typer.Option(help="Seconds that it may take.")]

EPILOG = (
    "Exit code 0: all of FILE compiles. 1: something is refused. FILE is compiled here, in a process of its "
    "own, for all that is refused and not for the first only; no service is asked, and nothing is kept. "
    "A .pt2 file is loaded by PyTorch: look at those only that you trust."
)


def support(
    file: OptionalFile = None,
    format: o.Format = None,
    target: o.TargetName = "host",
    numerics: o.Numerics = "default",
    timeout: Seconds = 600.0,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Say of FILE each op that would be refused, where, and why; without FILE, list what compiles.

    The list has what tests ran: each op with the dtypes whose results were compared on a CPU,
    and those that were compiled for a GPU.
    """
    if file is None:
        table = json_text.loads(_TABLE.read_text())
        output.show(table, json, lambda: _listed(table))
        return
    found = check(file, format, target, numerics, timeout)
    output.show(found, json, lambda: _page(file, found))
    if found["refused"]:
        raise typer.Exit(exits.ERROR)


def check(file: str, format: str | None, target: str, numerics: str, timeout: float) -> dict[str, Any]:
    """What ``--json`` prints of a file."""
    from kcache_grpc.model.target import parse_target

    wanted = str(parse_target(target))
    o.compile_options(numerics, 1, "")
    try:
        program, exported = _read(file, format)
    except UnsupportedOp as error:  # what PyTorch's importer does not read
        refused: list[dict[str, Any]] = [{"op": error.op, "reason": error.message, "count": 1, "where": []}]
        note = "the program was not looked at beyond this: there may be more"
        found = {"operations": None, "supported": None, "refused": refused, "note": note}
        return {"format": "torch", "target": wanted, "numerics": numerics, **found}
    described = {"format": program.format.value, "target": wanted, "numerics": numerics}
    found = asyncio.run(_asked(program, described, timeout))
    if exported:  # lines of a text that nobody has seen
        found["refused"] = [one | {"where": []} for one in found["refused"]]
    return described | found


def _read(file: str, format: str | None) -> tuple[Program, bool]:
    """The program, and whether it is what PyTorch exported."""
    from kcache_grpc.client.source import read_program

    content = o.read_file(file)
    if isinstance(content, Path) and format in (None, "torch") and _is_zip(content):
        return read_program(_exported(content), format), True
    return read_program(content, format), False


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


async def _asked(program: Program, header: dict[str, str], timeout: float) -> dict[str, Any]:
    """The answer of a worker, which may crash or hang over the program as a service's may."""
    if any(find_spec(name) is None for name in ("torch_mlir", "llvmlite")):
        raise Unavailable(f"the compiler is not installed here: {_INSTALL}")
    from kcache_grpc.worker.frames import Frame
    from kcache_grpc.worker.process import WorkerProcess, WorkerSettings

    worker = await WorkerProcess.start(WorkerSettings(jobs="kcache_grpc.worker.support"))
    try:
        reply = await worker.run(Frame({"type": "support", **header}, (program.body,)), timeout)
    finally:
        await worker.close()
    return dict(reply.header["found"])


def _page(file: str, found: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.markup import escape

    name = "standard input" if file == "-" else Path(file).name
    counted = found["operations"] is not None
    operations = f"{found['supported']} of {found['operations']} operations compile"
    if not counted:
        operations = "refused" if found["refused"] else "compiles"
    parts: list[Any] = [
        f"[bold]{escape(name)}[/] ({found['format']}): {operations} for {escape(found['target'])}, "
        f"numerics {escape(found['numerics'])}"
    ]
    if found["refused"]:
        parts += ["", output.rows([_row(one) for one in found["refused"]])]
    if found["note"]:
        parts += ["", f"Note: {escape(found['note'])}."]
    return Group(*parts)


def _row(one: dict[str, Any]) -> dict[str, Any]:
    places = [_place(place) for place in one["where"]]
    more = [] if one["count"] <= len(places) or not places else ["..."]
    return {
        "refused": one["op"] or "the program",
        "times": one["count"],
        "where": ", ".join([*places[:3], *(more or ["..."] * (len(places) > 3))]) or "-",
        "why": one["reason"],
    }


def _place(place: str) -> str:
    """``-:3:8``, which the parser calls its buffer, is line 3."""
    buffer, _, rest = place.partition(":")
    return f"line {rest.partition(':')[0]}" if buffer == "-" and rest else place


def _listed(table: dict[str, Any]) -> Any:
    from rich.console import Group

    rows = [
        {"op": row["op"], **{target: ", ".join(row[target]) or "-" for target in table["targets"]}}
        for row in table["ops"]
    ]
    meanings = [f"{name}: {what}" for name, what in table["targets"].items()]
    return Group(output.rows(rows), "", *meanings, table["note"])
