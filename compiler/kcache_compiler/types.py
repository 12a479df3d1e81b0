"""Arguments and results of the compiler: plain, frozen values without MLIR objects.

Sizes are element counts unless a name says bytes. A dimension is an ``int`` if it is static, and the name of
a symbol (``"s0"``) if it is known at run time only. Formulas are text in the grammar of
``kcache_grpc.model.sizes.expression``: integers, symbols, ``+ - * %``, ``ceildiv(a,b)``, ``min(a,b)``,
``max(a,b)``, ``roundup(a,b)``.
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

#: Element types of at most 8 bits without arithmetic instructions. A byte of a buffer holds one element, in
#: its low bits.
SMALL_FLOATS = (
    *("f8E3M4", "f8E4M3", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU"),
    *("f6E2M3FN", "f6E3M2FN", "f4E2M1FN"),
)
SMALL_INTEGERS = ("i2", "i4", "ui2", "ui4")
SMALL = (*SMALL_INTEGERS, *SMALL_FLOATS)
#: Element types of ``kcache.Graph``.
PLAIN_DTYPES = tuple(_PLAIN_BYTES)
#: Bytes of one element in a buffer, by dtype; i1 is one byte, complex is interleaved.
DTYPE_BYTES: dict[str, int] = _PLAIN_BYTES | dict.fromkeys(SMALL, 1)

NUMERICS = ("strict", "default", "fast")


class LibraryCache(Protocol):
    """A store of compiled libraries that processes share; hashable. A name has one content forever.

    Neither method raises: a library that cannot be stored or loaded is compiled again.
    """

    def load(self, name: str) -> bytes | None:
        """Return the content that was saved under ``name``; None if there is none."""
        ...

    def save(self, name: str, content: bytes) -> None:
        """Save ``content``, which may be evicted at any time."""
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
    """A size known at run time: that of ``axis`` of input ``arg``, both counted from 0."""

    name: str
    arg: int
    axis: int


@dataclass(frozen=True)
class ArgSpec:
    """The types of a kernel's inputs, in program order."""

    args: tuple[TensorType, ...]

    def __str__(self) -> str:
        return ";".join(map(str, self.args))


@dataclass(frozen=True)
class Quantization:
    """The quantization of a buffer: ``real = (integer - zero_point) * scale``.

    Real numbers have dtype ``expressed``; integers are in ``low`` to ``high``. ``scales`` and ``zero_points``
    have one element (``axis`` is None), or one for each index along ``axis``.
    """

    expressed: str
    low: int
    high: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None


@dataclass(frozen=True)
class LiftedConstant:
    """A large constant that is a buffer after the inputs, at ``position`` among the constants, from 0.

    ``content`` is little-endian, row-major, in the element layout of buffers; ``digest`` is its SHA-256.
    """

    position: int
    type: TensorType
    digest: bytes
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Canonical:
    """The result of canonicalization.

    ``spec_text`` is deterministic; its first line names the canonicalizer version and the numerics class.
    ``spec_digest`` is the SHA-256 of its UTF-8 bytes. ``arg_spec`` has the sizes of the program. ``symbols``
    are those of the spec, ``symbol_values`` their sizes in the program, -1 for a dynamic axis.
    ``symbolic_args`` are the inputs of the spec, whose sizes are integers, symbols or products such as
    ``"2*s0*s1"``; if both are empty, the only symbols are those of ``arg_spec``.

    ``quantized_args`` and ``quantized_results`` are the quantization of each argument and result, None if it
    has none; both are empty if no buffer is quantized. ``size_arguments`` are the arguments, by index, that
    are integers in the program, and in the spec tensors without elements whose axes have these sizes.
    ``counted_results`` are (result, axis, result with the count): the number of elements along the axis
    depends on data, and the type has the most; counts are ``i64`` scalars after the program's results.
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
    """Options that may change the bytes of a kernel.

    ``schedule`` is the canonical text of scheduling choices (``schedule/choices.py``), empty for the
    defaults. ``bound`` are inputs by position, ascending, that depend on no call: what is computed from them
    and from constants alone is computed by ``kcache_prepare``.
    """

    numerics: str = "default"
    opt_level: int = 3
    tuning: str = "generic"
    schedule: str = ""
    bound: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = f"numerics={self.numerics} opt_level={self.opt_level} tuning={self.tuning}"
        text += f" schedule={self.schedule}" if self.schedule else ""
        return f"{text} bound={','.join(map(str, self.bound))}" if self.bound else text


@dataclass(frozen=True)
class Launch:
    """One launch of ``kcache_run``, and the operations that it computes.

    ``extent`` and ``grain`` are formulas: the range of ``parallel_for``, and its smallest slice. A launch of
    extent ``"1"`` runs on the calling thread. ``flops`` and ``bytes`` are formulas of the floating-point
    operations and of the memory that it accesses; empty unless the schedule reports launches.
    """

    name: str
    ops: tuple[str, ...]
    extent: str
    grain: str
    flops: str = ""
    bytes: str = ""


@dataclass(frozen=True)
class GpuResources:
    """Resources of an entry as ``ptxas`` reports them: per thread, and static shared bytes per block."""

    registers: int
    spill_bytes: int
    static_shared: int


@dataclass(frozen=True)
class GpuLaunch:
    """One launch of a GPU kernel; launches run in order on one stream.

    ``when`` is a comparison of two formulas (``"s0 % 8 == 0"``; one of ``== != < <= > >=``) or empty; a
    launch whose comparison is false, or with a grid dimension of 0, is skipped. ``grid`` are formulas of
    blocks, ``block`` numbers of threads, both in x, y, z. ``shared_bytes`` is the dynamic shared memory.
    ``params`` have 8 bytes each, in order: ``"buffer:N"`` is the pointer of buffer ``N`` (inputs, constants,
    outputs), ``"workspace:FORMULA"`` the workspace plus a byte offset, ``"i64:FORMULA"`` an integer.
    ``resources`` are known if ``ptxas`` ran.
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
class BoundInterface:
    """What ``kcache_prepare`` takes and writes.

    ``arguments`` are the bound ones by position among inputs and constants, ascending: all constants are
    bound. ``prepared_bytes`` is the size of the prepared buffer, ``alignment`` in bytes, ``workspace`` a
    formula in bytes over ``workers``.
    """

    arguments: tuple[int, ...]
    prepared_bytes: int
    alignment: int
    workspace: str


@dataclass(frozen=True)
class KernelInterface:
    """The interface of a kernel to its callers.

    Buffers are inputs, constants and outputs, in this order. ``dims`` at run time are the sizes of
    ``symbols``, in order. ``workspace`` is a formula in bytes over the symbols and ``workers``. Dims of
    outputs may be formulas over the symbols. ``required_isa`` are the LLVM features that the code needs
    beyond the baseline of its triple.

    A GPU kernel has ``gpu_launches`` and no ``launches``; ``checks`` are comparisons of formulas that must
    hold before its first launch. A CPU kernel evaluates its checks itself and returns error 1.

    The buffers of a kernel with ``bound`` arguments are the other inputs, the prepared buffer and outputs.
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
    bound: BoundInterface | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """Artifact bytes by kind (``so``, ``mlir``, ``llvm``, ``asm``) and the interface of ``so``."""

    artifacts: dict[str, bytes] = field(repr=False)
    interface: KernelInterface
    stage_seconds: dict[str, float]
