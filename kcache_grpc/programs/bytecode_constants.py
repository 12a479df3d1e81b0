"""Large constants of StableHLO programs in MLIR bytecode and portable artifacts.

Only MLIR reads bytecode. The one of torch-mlir, or else of JAX, makes text of it in a process of its own,
because native parsers may crash over bytes of any origin; of the text without its constants it makes an
artifact of the same version.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kcache_grpc.programs.locations import strip_locations
from kcache_grpc.programs.onnx.weights import LIFT_BYTES
from kcache_grpc.programs.text_constants import lift_constants
from kcache_grpc.runtime.bound_kernel import BoundArguments

#: MLIR bytecode (magic, format version) whose producer is StableHLO's portable form.
PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(\d+\.\d+\.\d+)\0", re.DOTALL)

_PACKAGES = ("torch_mlir", "jax")
_SECONDS = 120


def lift_bytecode(body: bytes) -> tuple[bytes, BoundArguments | None]:
    """Take the large constants out of bytecode, as ``lift_constants`` does of text.

    The same bytes come back where no MLIR is installed here, or where it cannot read them: the service says
    what is wrong with them.
    """
    if len(body) <= LIFT_BYTES or not any(find_spec(package) for package in _PACKAGES):
        return body, None
    text = _converted("text", body)
    if text is None:
        return body, None
    lifted, arguments = lift_constants(text)
    if lifted is text:
        return body, None
    version = PORTABLE.match(body)
    program = strip_locations(lifted)
    if version is not None:
        artifact = _converted(version[1].decode(), program)
        if artifact is None:
            return body, None
        program = artifact
    return program, arguments


def _converted(to: str, content: bytes) -> bytes | None:
    command = [sys.executable, "-m", "kcache_grpc.programs.bytecode_constants", to]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _main(to: str) -> None:
    """Read a program from standard input; write it as text, or as an artifact of a version."""
    content = sys.stdin.buffer.read()
    for package in _PACKAGES:
        if find_spec(package) is None:
            continue
        try:
            written = written_by(package, to, content)
        except Exception:  # noqa: BLE001, S112  (code of other projects: the next one may be able to)
            continue
        sys.stdout.buffer.write(written)
        return
    sys.exit("no MLIR here reads the program")


def written_by(package: str, to: str, content: bytes) -> bytes:
    """Return a program as text, or text as an artifact of a version; raises what the package raises."""
    context, ir, dialect = _dialects(package)
    with context:
        if to != "text":
            return bytes(dialect.serialize_portable_artifact_str(content.decode(), to))
        if PORTABLE.match(content) is not None:
            return str(dialect.deserialize_portable_artifact(context, content)).encode()
        return str(ir.Module.parse(content, context)).encode()


def _dialects(package: str) -> tuple[Any, Any, Any]:
    """A context that knows StableHLO, and the bindings of a package."""
    if package == "jax":
        context: Any = import_module("jax.interpreters.mlir").make_ir_context()
        return context, import_module("jaxlib.mlir.ir"), import_module("jaxlib.mlir.dialects.stablehlo")
    ir: Any = import_module("torch_mlir.ir")
    dialect: Any = import_module("torch_mlir._mlir_libs._stablehlo")
    context = ir.Context()
    dialect.register_dialect(context)
    context.load_all_available_dialects()
    return context, ir, dialect


if __name__ == "__main__":
    _main(sys.argv[1])
