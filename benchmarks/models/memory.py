"""Memory of bound kernels beside ONNX Runtime's.

``python -m benchmarks.models.memory [--models NAMES] [--json FILE]``. A process of kcache calls a model with
bound weights, one of ONNX Runtime runs its export, both on one thread. Printed are, of kcache, the weights,
the prepared buffers and the workspace of its kernels, as their manifests say, with the outputs; of ONNX
Runtime what its first calls add to the resident memory of the loaded session, whose weights are not in the
arena of its activations. ``benchmarks.models.growth`` measures memory over many calls.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart
from tests.serving import ServerProcess

KCACHE, ONNX_RUNTIME = "kcache-bound", "onnxruntime"
#: Of a session: what is left of weights that it packs is no memory for its activations.
WEIGHTS_APART = {"session.use_device_allocator_for_initializers": "1"}
_MIB = 1 << 20


def resident() -> int:
    """Resident bytes of this process that are not of files: weights may be mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) << 10


def child(model: str, contender: str, folder: Path) -> dict[str, Any]:
    """Measured in this process."""
    import torch

    from benchmarks.models.catalog import instantiate
    from benchmarks.models.contenders import CONTENDERS, onnx_runtime

    torch.set_num_threads(1)
    module, inputs = instantiate(model)
    weights = sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])
    with torch.no_grad():
        if contender == ONNX_RUNTIME:
            call, _ = onnx_runtime(module, inputs, 1, folder, WEIGHTS_APART)
            return {"activations": _added(call)}
        call, read = CONTENDERS[contender](module, inputs, 1, folder)
        outputs = sum(tensor.nbytes for tensor in read(call()))
        return {"weights": weights, "outputs": outputs, **_kernels()}


def _added(call: Callable[[], Any]) -> int:
    """What the first calls add to the resident memory: its arena is kept after a call.

    Memory that the export has freed is returned first: the calls would use it again.
    """
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = resident()
    for _ in range(3):
        call()
    return resident() - before


def _kernels() -> dict[str, int]:
    """Bytes of the prepared buffers and of the workspaces of this process's kernels with bound weights."""
    from kcache_grpc.model.sizes.expression import evaluate
    from kcache_grpc.runtime.kernel import Kernel

    manifests = [each.manifest for each in gc.get_objects() if type(each) is Kernel]
    bound = {each.kernel_digest: each for each in manifests if each.preparation is not None}.values()
    if not bound:
        raise RuntimeError("PyTorch computed the model: there is no kernel with bound weights")
    return {
        "prepared": sum(each.preparation.prepared_bytes for each in bound if each.preparation),
        "workspace": sum(evaluate(each.workspace_bytes, {"workers": 1}) for each in bound),
    }


def measured(model: str, address: str) -> dict[str, Any]:
    """The row of a model; ``address`` is that of the server."""
    with tempfile.TemporaryDirectory(prefix="kcache-memory-") as name:
        ours, theirs = (_answer(model, each, name, address) for each in (KCACHE, ONNX_RUNTIME))
    activations = ours["workspace"] + ours["outputs"]
    return {
        **ours,
        "onnxruntime": theirs["activations"],
        "ratio": activations / max(1, theirs["activations"]),
    }


def _answer(model: str, contender: str, folder: str, address: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--child", contender, folder, address]
    done = subprocess.run(
        [*command, "--models", model],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["its process ended without a message"])[-1]


def row(model: str, report: dict[str, Any]) -> str:
    cells = [f"{report[name] / _MIB:.1f}" for name in ("weights", "prepared", "workspace", "outputs")]
    cells += [f"{report['onnxruntime'] / _MIB:.1f}", f"{report['ratio']:.2f}"]
    return f"| {' | '.join([model, *cells])} |"


def arguments() -> argparse.Namespace:
    from benchmarks.models.catalog import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.child:
        contender, folder, address = options.child
        os.environ |= {
            "KCACHE_ADDR": address,
            "KCACHE_CACHE_DIR": str(Path(folder) / "cache"),
            "KCACHE_NUM_THREADS": "1",
        }
        print(json.dumps(child(options.models[0], contender, Path(folder))))
        return
    clear_and_restart(__spec__.name)
    print("| model | weights, MiB | prepared | workspace | outputs | ONNX Runtime | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kcache-memory-") as name, ServerProcess(Path(name)) as server:
        for model in options.models:
            try:
                rows[model] = measured(model, server.address)
            except subprocess.CalledProcessError as error:
                print(f"| {model} | not measured: {last_line(error.stderr)} |", flush=True)
                continue
            print(row(model, rows[model]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
