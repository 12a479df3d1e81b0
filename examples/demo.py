"""The main job, end to end: a real server, three client processes, three graphs, one crash.

Client 1 asks for kernels that nobody has: the server compiles them. Client 2 is another process with an
empty cache of its own: it gets all of them from the server. Then the server is killed with SIGKILL and
started again, and client 3, with an empty cache too, still gets all of them. Every client runs every
kernel and compares the result with what JAX computed in f64. Exits with 1 if anything is off.

Run it with ``make demo``. ``--keep DIR`` keeps database, caches and server log.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import inputs
import numpy as np
from rich.console import Console
from rich.table import Table

import kcache_grpc as kcache

#: Seconds that a server may take to listen, and a client to do everything, on a slow machine.
_START_SECONDS = 60.0
_CLIENT_SECONDS = 170.0
_REPEATS = 5


@dataclass(frozen=True)
class Row:
    """What one client saw of one graph. Times are milliseconds, sizes bytes.

    ``error`` is the largest absolute error, ``share`` the largest part of the tolerance that an element uses.
    """

    client: str
    graph: str
    key: int
    origin: str
    get_ms: float
    run_ms: float
    size: int
    error: float
    share: float


def main() -> int:
    """Tells the whole story, or plays one client of it."""
    arguments = _parser().parse_args()
    if arguments.client:
        rows = [_measure(arguments.client, arguments.addr, arguments.cache, name) for name in inputs.NAMES]
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    with tempfile.TemporaryDirectory(prefix="kcache-demo-") as temporary:
        directory = Path(arguments.keep or temporary)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _report(_tell_the_story(directory))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--keep", metavar="DIR", help="keep database, caches and server log here")
    for name in ("--client", "--addr", "--cache"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser


def _tell_the_story(directory: Path) -> list[Row]:
    console = Console(stderr=True)
    with _server(directory) as (address, process):
        console.print(f"server {process.pid} listens on {address}")
        rows = _client(directory, "1: first", address, console)
        rows += _client(directory, "2: empty cache", address, console)
        console.print("killing the server with SIGKILL")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with _server(directory) as (address, process):
        console.print(f"server {process.pid} listens on {address}")
        return rows + _client(directory, "3: after the crash", address, console)


@contextmanager
def _server(directory: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "kcache_grpc", "serve", "--listen", "127.0.0.1:0"]
    command += ["--db", f"sqlite:///{directory}/kcache.sqlite", "--socket", f"{directory}/run/kcache.sock"]
    command += ["--state-dir", f"{directory}/state"]
    with (directory / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment())
    try:
        yield _address(process, directory), process
    finally:
        process.terminate()
        process.wait(timeout=30)


def _address(process: subprocess.Popen[str], directory: Path) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and (line := process.stdout.readline()):
        if line.startswith("{") and (event := json.loads(line)).get("event") == "listening":
            return next(address for address in event["addresses"] if not address.startswith("unix:"))
    raise SystemExit(f"the server did not start; its log:\n{(directory / 'server.log').read_text()[-2000:]}")


def _client(directory: Path, name: str, address: str, console: Console) -> list[Row]:
    cache = directory / f"cache-{name[0]}"
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--client",
        name,
        "--addr",
        address,
        "--cache",
        str(cache),
    ]
    with console.status(f"client {name}"):
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_CLIENT_SECONDS,
            env=_environment(),
            check=True,
        )
    return [Row(**row) for row in json.loads(done.stdout)]


def _environment() -> dict[str, str]:
    """The user's environment without settings that would change what is shown."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")}


def _measure(client_name: str, address: str, cache: str, graph: str) -> Row:
    example = inputs.load(graph)
    with kcache.Client(address, cache_dir=cache, strict=True) as client:
        client.stats()  # connect first: the row is about the kernel
        started = time.perf_counter()
        kernel = client.compile(example.program)
        get_ms = (time.perf_counter() - started) * 1e3
        outputs = kernel(*example.inputs)
        times = [_timed(kernel, example.inputs) for _ in range(_REPEATS)]
    errors = [_errors(got, want, example) for got, want in zip(outputs, example.expected, strict=True)]
    return Row(
        client=client_name,
        graph=graph,
        key=kernel.key,
        origin=kernel.origin,
        get_ms=get_ms,
        run_ms=sorted(times)[len(times) // 2] * 1e3,
        size=len(kernel.artifact("so")),
        error=max(error for error, _ in errors),
        share=max(share for _, share in errors),
    )


def _timed(kernel: Any, arrays: tuple[np.ndarray, ...]) -> float:
    started = time.perf_counter()
    kernel(*arrays)
    return time.perf_counter() - started


def _errors(got: np.ndarray, want: np.ndarray, example: inputs.Example) -> tuple[float, float]:
    """Largest absolute error and largest share of the tolerance; infinite for NaN or a wrong shape."""
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf"), float("inf")
    error = np.abs(got.astype(np.float64) - want)
    share = error / (example.atol + example.rtol * np.abs(want))
    return float(error.max(initial=0.0)), float(share.max(initial=0.0))


def _report(rows: list[Row]) -> int:
    table = Table(title="kcache: compiled once, served ever after")
    for column in (
        "client",
        "graph",
        "key",
        "origin",
        "get ms",
        "run ms",
        "size",
        "largest error",
        "of tolerance",
    ):
        table.add_column(column, justify="left" if column in ("client", "graph", "origin") else "right")
    for row in rows:
        style = None if _is_right(row) else "bold red"
        table.add_row(
            row.client,
            row.graph,
            str(row.key),
            row.origin,
            f"{row.get_ms:,.1f}",
            f"{row.run_ms:,.2f}",
            f"{row.size:,}",
            f"{row.error:.1e}",
            f"{row.share:.0%}",
            style=style,
        )
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    keys = {row.graph: {other.key for other in rows if other.graph == row.graph} for row in rows}
    wrong = [row for row in rows if not _is_right(row)]
    complaints = [f"{row.client}, {row.graph}: origin {row.origin}, error {row.error}" for row in wrong]
    complaints += [f"{graph} has several keys: {found}" for graph, found in keys.items() if len(found) > 1]
    if len(rows) != 3 * len(inputs.NAMES):
        complaints.append(f"{len(rows)} rows instead of {3 * len(inputs.NAMES)}")
    for complaint in complaints:
        print(f"OFF: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


def _is_right(row: Row) -> bool:
    origin = "compiled" if row.client.startswith("1") else "remote"
    return row.origin == origin and row.share <= 1


if __name__ == "__main__":
    sys.exit(main())
