"""Programs of JAX: ``jax.export.Exported``, ``jax.stages.Lowered``, jitted functions with example arguments.

They are told by their type: JAX is the caller's and never imported for a caller who has not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.programs.framework_versions import warn_if_untested
from kcache_grpc.programs.locations import strip_locations
from kcache_grpc.programs.text_constants import lift_constants
from kcache_grpc.runtime.bound_kernel import BoundArguments

_SIGNATURE = re.compile(r"func\.func public @main\((.*?)\) -> ", re.DOTALL)
_LOCATION = re.compile(r'loc\((?:(#\w+)|"((?:[^"\\]|\\.)*)")')
_ALIAS = re.compile(r'^(#\w+) = loc\("((?:[^"\\]|\\.)*)"', re.MULTILINE)
#: MLIR bytecode (magic, format version) whose producer is StableHLO's portable form.
_PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(\d+\.\d+\.\d+)\0", re.DOTALL)
_DIALECT = "sdy."
#: Attributes that hold a dictionary for every argument and result of a function.
_OF_VALUES = ("arg_attrs", "res_attrs")


def lifted_artifact(exported: Any) -> tuple[bytes, BoundArguments | None]:
    """The module as a portable artifact, without locations and large constants where JAX's own MLIR can take
    them out, and these constants.

    A kernel of it takes the module's arguments: flattened, without those that the export dropped as unused.
    Raises ``ArgumentError`` for several devices or platforms, ``UnsupportedOp`` for ops that need them.
    """
    warn_if_untested("jax")
    if exported.nr_devices != 1:
        raise ArgumentError(f"the program was exported for {exported.nr_devices} devices; kernels run on one")
    if len(exported.platforms) != 1:
        names = ", ".join(exported.platforms)
        raise ArgumentError(f"the program was exported for {names}; export it for one platform")
    body = bytes(exported.mlir_module_serialized)
    version = _PORTABLE.match(body)
    rewritten = None if version is None else _rewritten(exported.mlir_module(), version[1].decode())
    return rewritten or (body, None)


def lowered_artifact(lowered: Any) -> tuple[bytes, BoundArguments | None]:
    """The module of a ``jax.stages.Lowered`` like that of an export, or as text where this JAX cannot.

    A kernel of it takes the module's arguments: flattened, without those that were dropped as unused.
    Raises ``ArgumentError`` for several devices or another dialect, ``UnsupportedOp`` for ops that need them.
    """
    warn_if_untested("jax")
    module = lowered.compiler_ir("stablehlo")
    if module is None:
        raise ArgumentError("the lowered program has no StableHLO: pass jax.export.export(function)(...)")
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        attributes = module.operation.attributes
        if name in attributes and int(attributes[name]) != 1:
            count = int(attributes[name])
            raise ArgumentError(f"the program was lowered for {count} devices; kernels run on one")
    try:
        dialect: Any = import_module("jaxlib.mlir.dialects.stablehlo")
        # What jax.export writes: a version that toolchains of the last weeks read.
        oldest = dialect.StablehloCompatibilityRequirement.WEEK_4
        rewritten = _rewritten(str(module), dialect.get_version_from_compatibility_requirement(oldest))
    except (ImportError, AttributeError):  # an older JAX
        rewritten = None
    return rewritten or (strip_locations(without_shardings(str(module)).encode()), None)


def traced(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A jitted function, exported for example arguments. Raises ``ArgumentError`` for anything else."""
    if not is_jitted(function):
        cls = cast("type[object]", type(function))
        raise ArgumentError(
            "args and kwargs are example arguments of a jitted function (jax.jit), "
            f"not of {cls.__module__}.{cls.__qualname__}"
        )
    export: Any = import_module("jax.export")
    return export.export(function)(*args, **kwargs)


def is_jitted(program: Any) -> bool:
    """Whether it is what ``jax.jit`` returns."""
    cls = cast("type[object]", type(program))
    return cls.__name__ == "PjitFunction" and cls.__module__.partition(".")[0] in ("jax", "jaxlib")


def argument_names(text: str) -> tuple[str, ...]:
    """Names that a function's arguments have in JAX, from its module's text with locations.

    Empty where an argument has none, or two have the same.
    """
    signature = _SIGNATURE.search(text)
    if signature is None:
        return ()
    aliases = dict(_ALIAS.findall(text))
    names: list[str] = []
    for part in re.split(r"%arg\d+: ", signature[1])[1:]:
        location = _LOCATION.search(part)
        if location is None:
            return ()
        name = location[2] if location[1] is None else aliases.get(location[1], "")
        if not name or name in names:
            return ()
        names.append(name)
    return tuple(names)


def _rewritten(text: str, version: str) -> tuple[bytes, BoundArguments | None] | None:
    """A portable artifact of a module's text, without locations and large constants; ``None`` where this JAX
    cannot write it.
    """
    try:
        dialect: Any = import_module("jaxlib.mlir.dialects.stablehlo")
        lifted, arguments = lift_constants(text.encode())
        lifted = strip_locations(without_shardings(lifted.decode()).encode())
        return bytes(dialect.serialize_portable_artifact_str(lifted, version)), arguments
    except UnsupportedOp:
        raise
    except Exception:  # noqa: BLE001  (untyped code of another project; locations cost a hit, not the program)
        return None


def located_text(exported: Any) -> bytes:
    """The module's text with its locations; empty where this JAX has none."""
    try:
        dialect: Any = import_module("jaxlib.mlir.dialects.stablehlo")
        context: Any = import_module("jax.interpreters.mlir").make_ir_context()
        with context:
            module = dialect.deserialize_portable_artifact(context, bytes(exported.mlir_module_serialized))
            asm: str = module.operation.get_asm(enable_debug_info=True, large_elements_limit=16)
            return asm.encode()
    except Exception:  # noqa: BLE001  (untyped code of another project; an error has fewer words without it)
        return b""


def without_shardings(text: str) -> str:
    """The module's text, without locations too; the same text where there is nothing to take out.

    Raises ``UnsupportedOp`` for ops of Shardy that do more than constrain, whatever JAX raises for others.
    """
    if _DIALECT not in text:
        return text
    ir: Any = import_module("jaxlib.mlir.ir")
    context: Any = import_module("jax.interpreters.mlir").make_ir_context()
    with context:
        module = ir.Module.parse(text)
        ops: list[Any] = []

        def note(op: Any) -> Any:
            ops.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(note)
        for op in ops:
            _clear(op, ir)
        # From the outside in: a walk gives ops after what they contain.
        for op in [op for op in reversed(ops) if op.name.startswith(_DIALECT)]:
            _remove(op)
        return str(module.operation.get_asm(enable_debug_info=False))


def _clear(op: Any, ir: Any) -> None:
    attributes = op.attributes
    for name in [_name(entry) for entry in attributes]:
        if name.startswith(_DIALECT):
            del attributes[name]
    for name in _OF_VALUES:
        if name in attributes:
            attributes[name] = ir.ArrayAttr.get([_cleared(entry, ir) for entry in attributes[name]])


def _cleared(dictionary: Any, ir: Any) -> Any:
    kept = {entry.name: entry.attr for entry in ir.DictAttr(dictionary)}
    return ir.DictAttr.get({name: attr for name, attr in kept.items() if not name.startswith(_DIALECT)})


def _name(entry: Any) -> str:
    """Iterating over attributes gives names or named attributes, as JAX's version has it."""
    return entry if isinstance(entry, str) else str(entry.name)


def _remove(op: Any) -> None:
    if op.name == "sdy.sharding_constraint":
        op.results[0].replace_all_uses_with(op.operands[0])
    elif op.name != "sdy.mesh":
        raise UnsupportedOp(f"{op.name} is for programs of several devices; kernels run on one", op=op.name)
    op.erase()
