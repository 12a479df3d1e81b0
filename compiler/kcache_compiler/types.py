"""Values that the compiler takes and gives: plain, frozen, free of MLIR objects.

Vocabulary and meaning follow the design's section 1. Sizes are element counts unless a
name says bytes. A dimension is an ``int`` when it is static and the name of a symbol
(``"s0"``) when it is known only at run time. Formulas are texts in the grammar of
``kcache_grpc.model.sizes.expression``: integers, symbols, ``+ - * %``, ``ceildiv(a,b)``,
``min(a,b)``, ``max(a,b)``, ``roundup(a,b)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

Dim = int | str

_PLAIN_BYTES: dict[str, int] = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "ui8": 1,
    "ui16": 2,
    "ui32": 4,
    "ui64": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "c64": 8,
    "c128": 16,
}

#: Elements of 8 bits and fewer that no machine computes with. A byte of a buffer holds one, in its low bits.
SMALL_FLOATS = (
    *("f8E3M4", "f8E4M3", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU"),
    *("f6E2M3FN", "f6E3M2FN", "f4E2M1FN"),
)
SMALL_INTEGERS = ("i2", "i4", "ui2", "ui4")
SMALL = (*SMALL_INTEGERS, *SMALL_FLOATS)
#: The elements that graphs of ``kcache.Graph`` have.
PLAIN_DTYPES = tuple(_PLAIN_BYTES)
#: dtype name -> bytes of one element in a buffer (i1 is one byte, complex is interleaved).
DTYPE_BYTES: dict[str, int] = _PLAIN_BYTES | dict.fromkeys(SMALL, 1)

NUMERICS = ("strict", "default", "fast")


class LibraryCache(Protocol):
    """Keeps compiled libraries between processes; hashable. A name stands for one content, for ever.

    Neither method raises: what cannot be kept or read is compiled again.
    """

    def load(self, name: str) -> bytes | None:
        """What was saved under ``name``, whole, or nothing."""
        ...

    def save(self, name: str, content: bytes) -> None:
        """Keep ``content``; it may go at any time."""
        ...


@dataclass(frozen=True)
class TensorType:
    """Element type and dimensions of one row-major contiguous tensor."""

    dtype: str
    dims: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Symbol:
    """A size known at run time, read from ``axis`` of input ``arg`` (both from 0)."""

    name: str
    arg: int
    axis: int


@dataclass(frozen=True)
class ArgSpec:
    """What a kernel is called with: the inputs, in program order."""

    args: tuple[TensorType, ...]

    def __str__(self) -> str:
        return ";".join(map(str, self.args))


@dataclass(frozen=True)
class Quantization:
    """What the integers of a buffer stand for: ``real = (integer - zero_point) * scale``.

    Real numbers are of dtype ``expressed``, integers from ``low`` to ``high``. ``scales`` and ``zero_points``
    have one element each, or as many as the buffer has along ``axis``, which is None where one is for all.
    """

    expressed: str
    low: int
    high: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None


@dataclass(frozen=True)
class LiftedConstant:
    """A large constant that became a buffer after the inputs, at ``position`` from 0 among constants.

    ``content`` is little-endian, row major, in the element layout of buffers; ``digest`` is its SHA-256.
    """

    position: int
    type: TensorType
    digest: bytes
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Canonical:
    """What canonicalization makes of a program.

    ``spec_text`` is deterministic; its first line names the canonicalizer version and the
    numerics class; ``spec_digest`` is the SHA-256 of its UTF-8 bytes.

    ``arg_spec`` has the program's own sizes. ``symbols`` are the spec's; ``symbol_values`` are their sizes in
    this program, -1 where it leaves the axis open; ``symbolic_args`` are the inputs as the spec has them,
    their sizes integers, symbols or products such as ``"2*s0*s1"``. Both empty: the spec is static but for
    the symbols of ``arg_spec``. ``quantized_args`` and ``quantized_results`` say of each argument and result
    what its integers stand for, None where they are numbers; both empty: no buffer is quantized.
    ``size_arguments`` are the arguments, by index, that the program has as integers, and the spec as axes of
    these lengths without elements. ``counted_results`` are (result, axis, result that counts): data says how
    many elements the result has along the axis, its type the most; the counts, ``i64`` scalars, follow the
    program's own results.
    """

    spec_text: str
    spec_digest: bytes
    arg_spec: ArgSpec
    results: tuple[TensorType, ...]
    symbols: tuple[Symbol, ...]
    constants: tuple[LiftedConstant, ...]
    arg_names: tuple[str, ...]
    operations: int
    symbol_values: tuple[int, ...] = ()
    symbolic_args: tuple[TensorType, ...] = ()
    quantized_args: tuple[Quantization | None, ...] = ()
    quantized_results: tuple[Quantization | None, ...] = ()
    size_arguments: tuple[int, ...] = ()
    counted_results: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class CompileOptions:
    """What may change the bytes of a kernel besides spec, arg spec, guard, target and toolchain.

    ``schedule`` is the canonical text of choices (``schedule/choices.py``), empty for all defaults.
    """

    numerics: str = "default"
    opt_level: int = 3
    tuning: str = "generic"
    schedule: str = ""

    def __str__(self) -> str:
        text = f"numerics={self.numerics} opt_level={self.opt_level} tuning={self.tuning}"
        return f"{text} schedule={self.schedule}" if self.schedule else text


@dataclass(frozen=True)
class Launch:
    """One launch inside ``kcache_run``: what it computes and how many independent slices it has.

    ``extent`` and ``grain`` are formulas: the range given to ``parallel_for`` and its smallest
    slice; an extent of ``"1"`` runs on the calling thread.
    """

    name: str
    ops: tuple[str, ...]
    extent: str
    grain: str


@dataclass(frozen=True)
class GpuResources:
    """What ``ptxas`` gave an entry: registers and bytes spilled a thread, static shared bytes a block."""

    registers: int
    spill_bytes: int
    static_shared: int


@dataclass(frozen=True)
class GpuLaunch:
    """One launch of a GPU kernel; launches run in order on one stream.

    ``when`` is a comparison of two formulas (``"s0 % 8 == 0"``; one of ``== != < <= > >=``) or empty: the
    launch is left out where it does not hold, and also where a grid dimension is 0. ``grid`` are formulas
    of blocks, ``block`` threads, both in x, y, z. ``shared_bytes`` is the dynamic shared memory.
    ``params`` are 8 bytes each, in order: ``"buffer:N"`` is the pointer of buffer ``N`` (inputs, constants,
    outputs), ``"workspace:FORMULA"`` the workspace plus a byte offset, ``"i64:FORMULA"`` a number.
    ``resources`` is known where ``ptxas`` ran.
    """

    name: str
    ops: tuple[str, ...]
    entry: str
    when: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    shared_bytes: str
    params: tuple[str, ...]
    resources: GpuResources | None = None


@dataclass(frozen=True)
class KernelInterface:
    """What a caller must know to call ``kcache_run``.

    Buffers are passed in the order inputs, constants, outputs. ``dims`` passed at run time are the
    sizes of ``symbols`` in order. ``workspace`` is a formula in bytes over the symbols and
    ``workers``. Output dims may be formulas over the symbols.
    ``required_isa`` lists the LLVM features that the code needs beyond the baseline of its triple.

    A GPU kernel has ``gpu_launches`` and no ``launches``; ``checks`` are comparisons of formulas that must
    hold before its first launch (a CPU kernel makes such checks itself and returns error 1).
    """

    inputs: tuple[TensorType, ...]
    constants: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    symbols: tuple[Symbol, ...]
    workspace: str
    launches: tuple[Launch, ...]
    triple: str
    required_isa: tuple[str, ...]
    error_codes: dict[int, str]
    abi: int = 1
    gpu_launches: tuple[GpuLaunch, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledKernel:
    """Artifact bytes by kind (``so``, ``mlir``, ``llvm``, ``asm``) and the interface of ``so``."""

    artifacts: dict[str, bytes] = field(repr=False)
    interface: KernelInterface
    stage_seconds: dict[str, float]
