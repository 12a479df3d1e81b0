"""Whole models at real size, with random weights and with batch 1: kcache beside other compilers.

    python -m benchmarks.models [--models resnet50,bert] [--contenders kcache,eager] [--threads 1,2]
                                [--dtype f32|bf16] [--rounds 7] [--budget 1] [--json FILE] [--pictures FOLDER]

Each contender is a process of its own, pinned to as many CPUs as there are threads. All processes of a model
are started and checked one after another, then measured in turns, in another order each round; while one
is measured the others sleep. Results are compared with eager mode in f64: an error of more than twice that of
eager mode in the type of the weights is reported, and not timed. Who is not installed, or fails, is reported
with its reason.

--json FILE has the rows that are complete; a second run with the same FILE measures those that it lacks.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.models.arguments import counts, names
from benchmarks.models.catalog import ALL, DTYPES, MODELS
from benchmarks.models.contenders import CONTENDERS
from benchmarks.models.pictures import draw
from benchmarks.models.processes import measured
from benchmarks.models.report import key, lines
from tests.serving import ServerProcess

_PACKAGES = ("torch", "onnxruntime", "openvino", "jax", "transformers", "diffusers")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=names(ALL), default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument(
        "--contenders", type=names(CONTENDERS), default=list(CONTENDERS), help=f"of {', '.join(CONTENDERS)}"
    )
    parser.add_argument("--threads", type=counts, default=[1, 2], help="numbers of threads, 1,2")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of weights and inputs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a contender in a round")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds until a process is given up")
    parser.add_argument("--json", type=Path, help="write the rows there, and skip those that it has")
    parser.add_argument("--pictures", type=Path, help="folder for the charts; needs matplotlib")
    return parser.parse_args()


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    return {
        name: importlib.metadata.version(name)
        for name in _PACKAGES
        if importlib.util.find_spec(name) is not None
    }


def run(options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Measure what ``found`` lacks; the file is written after each row."""
    for threads in options.threads:
        for model in options.models:
            name = key(model, threads, options.dtype)
            if name in report["rows"]:
                continue
            with tempfile.TemporaryDirectory(prefix="kcache-models-") as folder:
                (Path(folder) / "server").mkdir()
                with ServerProcess(Path(folder) / "server") as server:
                    row = measured(
                        model,
                        options.dtype,
                        threads,
                        options.contenders,
                        options.rounds,
                        options.budget,
                        options.timeout,
                        Path(folder),
                        server.address,
                    )
            report["rows"][name] = {"model": model, "threads": threads, "dtype": options.dtype, **row}
            print(*lines({name: row}, options.contenders), sep="\n", flush=True)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    options = arguments()
    clear_and_restart("benchmarks.models")
    report: dict[str, Any] = {"environment": {**description(), "packages": versions()}, "rows": {}}
    if options.json and options.json.exists():
        report["rows"] = json.loads(options.json.read_text())["rows"]
    run(options, report)
    print("", *lines(report["rows"], options.contenders), sep="\n")
    if options.pictures:
        print(*draw(report, options.pictures), sep="\n")


if __name__ == "__main__":
    main()
