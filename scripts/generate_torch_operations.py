"""Writes the names of the Torch dialect's operations that programs may have.

python -m scripts.generate_torch_operations write
python -m scripts.generate_torch_operations check
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from kcache_grpc.programs.framework_versions import TESTED
from kcache_grpc.programs.torch import recurrent

FILE = Path(__file__).parents[1] / "kcache_grpc/programs/torch/graph_text/torch_operations.txt"


def generated() -> str:
    """A name a line, sorted; "+" before operations that torch-mlir does not define and the service lowers."""
    torch: Any = import_module("torch")
    ir: Any = import_module("torch_mlir.ir")
    dialect: Any = import_module("torch_mlir.dialects.torch")
    lowerings: Any = import_module("kcache_compiler.frontends.torch.lowerings")
    context = ir.Context()
    dialect.register_dialect(context)
    recurrent.operators()
    names: set[str] = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace in ("aten", "prims", recurrent.NAMESPACE):
            names.add(f"{namespace}.{name}" + (f".{schema.overload_name}" if schema.overload_name else ""))
    defined = {name for name in names if context.is_registered_operation(f"torch.{name}")}
    lowered = {name for name in names - defined if f"torch.{name}" in lowerings.LOWERINGS}
    return "".join(f"{name}\n" for name in sorted(defined)) + "".join(
        f"+{name}\n" for name in sorted(lowered)
    )


def not_comparable() -> str | None:
    """Why the file cannot be compared here, which needs torch-mlir and the oldest supported PyTorch."""
    try:
        installed = str(import_module("torch").__version__)
        import_module("torch_mlir.ir")
    except ImportError as error:
        return str(error)
    oldest = ".".join(map(str, TESTED["torch"][0]))
    return (
        None if installed.startswith(f"{oldest}.") else f"it lists names of PyTorch {oldest}, not {installed}"
    )


def main() -> int:
    """Write the file, or say whether it is up to date."""
    if sys.argv[1:] == ["write"]:
        FILE.write_text(generated())
        return 0
    if sys.argv[1:] != ["check"]:
        print(__doc__)
        return 2
    reason = not_comparable()
    if reason is not None:
        print(f"{FILE.name} was not checked: {reason}")
        return 0
    if FILE.read_text() != generated():
        print(f"{FILE.name} is out of date: python -m scripts.generate_torch_operations write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
