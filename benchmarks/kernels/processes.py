"""The processes of a run: a server with warm workers, and one that measures, started again where it dies."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from tests.serving import ServerProcess


def measured(names: list[str], threads: int, options: argparse.Namespace) -> Generator[dict[str, Any]]:
    """The machine, then kernels as they are done. A kernel whose process dies is a line that says so."""
    left = list(names)
    with (
        tempfile.TemporaryDirectory(prefix="kcache-kernels-") as folder,
        ServerProcess(Path(folder)) as server,
    ):
        while left:
            for line in _lines(server, left, threads, options):
                yield line
                if "case" in line:
                    left.remove(line["case"]["name"])
            if left:
                yield {"case": {"name": left.pop(0), "threads": threads, "died": True, "contenders": {}}}


def _lines(
    server: ServerProcess, names: list[str], threads: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-m", "benchmarks.kernels.child"]
    command += ["--address", server.address, "--server", str(server.pid)]
    command += ["--inductor-cache", str(options.inductor_cache or "")]
    command += ["--autotune-seconds", str(options.autotune_seconds)]
    command += ["--compile"] if options.compile else []
    for name in ("rivals", "rounds", "budget", "clock", "numerics", "target"):
        command += [f"--{name}", str(getattr(options, name))]
    with subprocess.Popen(
        [*command, "--threads", str(threads), *names], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield from map(json.loads, child.stdout)
        finally:
            child.terminate()
