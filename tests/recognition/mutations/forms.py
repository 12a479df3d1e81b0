"""Ways to print one module: names, locations, syntax and encoding are no part of what it means."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from typing import Any

from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

_NAME = re.compile(r"%([A-Za-z0-9_$.-]+)")
_SYMBOL = re.compile(r"@(?!main\b)([A-Za-z_]\w*)")
_MAIN = re.compile(r"@main\(([^\n]*)\) ->")
_ARGUMENT = re.compile(r"(%\w+: tensor<[^>]*>)(?=[,)]|$)")


def plain(module: Any, rng: random.Random) -> bytes:
    """The printer's own text."""
    return module.operation.get_asm().encode()


def renamed(module: Any, rng: random.Random) -> bytes:
    """Every value and private function by another name, arguments named."""
    names: dict[str, str] = {}
    tag = rng.randrange(10**6)

    def fresh(match: re.Match[str]) -> str:
        return "%" + names.setdefault(match[1], f"n{tag}_{rng.randrange(1000)}_{len(names)}")

    text = _SYMBOL.sub(rf"@other{tag}_\1", _NAME.sub(fresh, module.operation.get_asm()))

    def named(match: re.Match[str]) -> str:
        inside = _ARGUMENT.sub(lambda a: f'{a[1]} loc("argument{tag}")', match[1])
        return f"@main({inside}) ->"

    text = _MAIN.sub(named, text, count=1)
    return re.sub(r"module( @\w+)?( attributes \{[^\n]*\})? \{", f"module @m{tag} {{", text, count=1).encode()


def located(module: Any, rng: random.Random) -> bytes:
    """With locations of some other file."""
    text = module.operation.get_asm(enable_debug_info=True)
    return text.replace('"-"', f'"/home/user{rng.randrange(1000)}/model.py"').encode()


def generic(module: Any, rng: random.Random) -> bytes:
    """In MLIR's generic syntax."""
    return module.operation.get_asm(print_generic_op_form=True).encode()


def bytecode(module: Any, rng: random.Random) -> bytes:
    """As MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def portable(module: Any, rng: random.Random) -> bytes:
    """As StableHLO's portable artifact, of this version or an older one; what has none, as bytecode."""
    text = module.operation.get_asm(print_generic_op_form=True)
    if not _FOREIGN.isdisjoint(_DIALECT.findall(text)) or "dense_resource<" in text:
        return bytecode(module, rng)
    return _stablehlo.serialize_portable_artifact(module, rng.choice(_VERSIONS))


_VERSIONS = [str(_stablehlo.get_current_version()), "1.5.0"]
_DIALECT = re.compile(r'"(\w+)\.\w+"\(')
#: Dialects of operations that no portable artifact has.
_FOREIGN = frozenset({"arith", "chlo", "shape", "tensor", "mhlo"})

FORMS: dict[str, Callable[[Any, random.Random], bytes]] = {
    "printed": plain,
    "renamed": renamed,
    "relocated": located,
    "generic": generic,
    "bytecode": bytecode,
    "portable": portable,
}
