"""What becomes of a sample: exported, compiled, run, compared with eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import CompileOptions
from kcache_grpc.errors import ArgumentError
from kcache_grpc.errors import UnsupportedOp as NotImported
from kcache_grpc.programs.torch.export import torch_program
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.compiler.torch_modules import Function
from tests.conformance.torch_ops.harness.samples import Sample
from tests.ops.generated.judge import Verdict

#: Relative to the number, and to the result's largest number, by the bytes of a real number.
_TOLERANCES = {2: (2e-2, 1e-2), 4: (5e-5, 2e-5), 8: (1e-7, 1e-8)}

#: Why a result is right that is not what eager mode gives in the samples' dtype.
ONCE = "as eager mode in f32, rounded once"


def judge(sample: Sample, edges: bool = False) -> tuple[Verdict, list[str]]:
    """The verdict, and the operations of ATen's core set in the program where it is right.

    ``no-oracle``: eager mode or ``torch.export`` itself rejects it, or a result is no tensor. With ``edges``
    each number is compared alone, whatever is the largest, and a zero has its sign.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            clones = [x.clone() for x in sample.tensors]
            wanted = pytree.tree_leaves(sample.function(*clones))
            exported = torch.export.export(Function(sample.function), sample.tensors)
        except Exception as error:  # code of another project
            return Verdict("no-oracle", f"PyTorch: {type(error).__name__}: {str(error)[:100]}"), []
    if not wanted or not all(isinstance(tensor, torch.Tensor) for tensor in wanted):
        return Verdict("no-oracle", "a result that is no tensor"), []
    try:
        got, updates = results_and_updates(exported, sample.tensors)
    except (UnsupportedOp, NotImported, ArgumentError) as error:
        return Verdict("rejected", f"{type(error).__name__}: {error}"), []
    except CompilerError as error:
        return Verdict("error", f"{type(error).__name__}: {error}"), []
    for name, new in updates.items():
        # Where the function writes to an input, eager mode wrote to its clone.
        why = difference([new], [clones[int(name.rpartition("_")[2])]])
        if why:
            return Verdict("wrong", f"{name}, updated: {why}"), []
    if edges:
        why = difference(got, wanted, True, _widely(sample, torch.float64))
    else:
        why = difference(got, wanted)
        is_narrow = any(x.dtype == torch.bfloat16 for x in sample.tensors)
        if why and is_narrow and not difference(got, _widely(sample, torch.float32)):
            return Verdict("right", ONCE), _core(exported)
    return (Verdict("wrong", why), []) if why else (Verdict("right"), _core(exported))


def difference(
    got: Sequence[np.ndarray],
    wanted: Sequence[torch.Tensor],
    edges: bool = False,
    wide: Sequence[torch.Tensor] = (),
) -> str:
    """Why results are not the wanted ones; empty where they are."""
    if len(got) != len(wanted):
        return f"{len(got)} results should be {len(wanted)}"
    others = map(array_of, wide if len(wide) == len(wanted) else wanted)
    differences = (_apart(*three, edges) for three in zip(got, map(array_of, wanted), others, strict=True))
    return next(filter(None, differences), "")


def _widely(sample: Sample, dtype: torch.dtype) -> list[torch.Tensor]:
    """What eager mode gives in a wider dtype, rounded once: some of its kernels round every step, or leave
    the range of the dtype on their way.
    """
    narrow = [x.dtype for x in sample.tensors if x.is_floating_point() and x.dtype != dtype]
    wide = (x.to(dtype) if x.dtype in narrow else x.clone() for x in sample.tensors)
    try:
        results = pytree.tree_leaves(sample.function(*wide))
    except Exception:  # code of another project: it takes no such dtype here
        return []
    return [x.to(narrow[0]) if narrow and x.dtype == dtype else x for x in results]


def _core(exported: Any) -> list[str]:
    targets = {node.target for node in exported.graph.nodes if node.op == "call_function"}
    return sorted(str(target) for target in targets if torch.Tag.core in getattr(target, "tags", ()))


def results(exported: Any, tensors: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    """What an exported program gives of tensors."""
    return kernel_of(exported)(tensors)


def results_and_updates(
    exported: Any, tensors: tuple[Any, ...]
) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
    """The same, and the new values of what the program updates in place, by name."""
    text, bound = torch_program(exported)
    with torch.no_grad():
        outputs = _compiled(text)([array_of(x) for x in bound.complete(tensors)])
    count = len(outputs) - len(bound.written)
    names = [argument.name for argument in bound.written]
    return outputs[:count], dict(zip(names, outputs[count:], strict=True))


def kernel_of(exported: Any) -> Callable[[tuple[Any, ...]], tuple[np.ndarray, ...]]:
    """An exported program as a function of its inputs, compiled in this process."""
    text, bound = torch_program(exported)
    compiled = _compiled(text)

    def run(tensors: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            return compiled([array_of(x) for x in bound.complete(tensors)])

    return run


def results_of(text: bytes, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """What a program of the Torch dialect gives."""
    return _compiled(text)(arrays)


def _compiled(text: bytes) -> Callable[[Sequence[np.ndarray]], tuple[np.ndarray, ...]]:
    form = canonicalize(text, "torch", "strict")
    options = CompileOptions(numerics="strict", opt_level=1)
    kernel = Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", options, lambda _: None))
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in form.constants]
    return lambda arrays: kernel(*arrays, *constants)


def array_of(tensor: Any) -> np.ndarray:
    """The elements of a tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _apart(got: np.ndarray, want: np.ndarray, wide: np.ndarray, edges: bool) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} should be {want.dtype}{list(want.shape)}"
    off = got != want if want.dtype.kind in "iub" else _far(got, want, edges)
    if edges and want.dtype.kind not in "iub" and wide.dtype == want.dtype:
        off &= _far(got, wide, edges)
    if not np.any(off):
        return ""
    at = int(np.flatnonzero(off)[0])
    return f"{np.count_nonzero(off)} of {off.size} differ: {got.flat[at]} at {at} should be {want.flat[at]}"


def _far(got: np.ndarray, want: np.ndarray, edges: bool) -> np.ndarray:
    if want.dtype.kind == "c":
        parts, wanted = (np.stack([array.real, array.imag]) for array in (got, want))
        return np.asarray(_far(parts, wanted, edges).any(axis=0))
    relative, of_largest = _TOLERANCES[want.dtype.itemsize]
    x, y = got.astype(np.float64), want.astype(np.float64)
    if edges:
        least = float(ml_dtypes.finfo(want.dtype).tiny)
        zeros = (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
        return zeros | ~np.isclose(x, y, rtol=relative, atol=least, equal_nan=True)
    largest = float(np.max(np.abs(y[np.isfinite(y)]), initial=0.0))
    return ~np.isclose(x, y, rtol=relative, atol=of_largest * min(largest, 1e3), equal_nan=True)
