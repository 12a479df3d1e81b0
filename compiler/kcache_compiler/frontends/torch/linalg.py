"""Factorizations of ``torch.linalg`` as LAPACK custom calls like JAX's, which the compiler defines.

The client decomposes the other functions of ``torch.linalg`` into these. If a factorization fails, ``info``
reports it as in PyTorch; nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.torch.torch_op import TENSOR, TorchOp, integer_constants, name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Type, Value

_TYPE_LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}
_REAL = {"complex<f32>": "f32", "complex<f64>": "f64"}


class _Matrices:
    """The first operand of an op: matrices of static sizes, as a builtin tensor."""

    def __init__(self, op: TorchOp) -> None:
        self.op = op
        operation = op.operation
        match = TENSOR.fullmatch(str(operation.operands[0].type))
        sizes = match[1].split(",") if match and match[1] else []
        if match is None or len(sizes) < 2 or not all(size.isdigit() for size in sizes):
            raise self._unsupported("it needs matrices of static sizes")
        self.element = match[2]
        if self.element not in _TYPE_LETTERS:
            raise self._unsupported(f"it supports f32, f64 and their complex types, not {self.element}")
        self.sizes = [int(size) for size in sizes]
        if 0 in self.sizes:
            raise self._unsupported("its matrices have no elements")
        *self.batch, self.rows, self.columns = self.sizes
        self.real = _REAL.get(self.element, self.element)
        self.value = op.builtin_tensor(operation.operands[0])

    def _unsupported(self, reason: str) -> UnsupportedOp:
        operation = self.op.operation
        return UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))

    def boolean(self, position: int) -> bool:
        """Return a boolean operand, which must be constant."""
        values = integer_constants(self.op.operation.operands[position])
        if values is None:
            raise self._unsupported(f"its operand {position} must be a constant")
        return bool(values[0])

    def text(self, position: int) -> str:
        """Return a string operand, which must be constant."""
        owner = lazy.definition(self.op.operation.operands[position])
        if getattr(owner, "name", "") != "torch.constant.str":
            raise self._unsupported(f"its operand {position} must be a constant")
        return lazy.string(owner.attributes["value"])

    def type(self, sizes: Sequence[int], element: str = "") -> str:
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element or self.element}>"

    def call(
        self, routine: str, operands: Sequence[Value], types: Sequence[str], **letters: str
    ) -> list[Value]:
        """Return the results of a LAPACK routine."""
        native = self.op.native
        settings = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items())
        attributes = {
            "call_target_name": native.StringAttr.get(f"lapack_{_TYPE_LETTERS[self.element]}{routine}_ffi"),
            "mhlo.backend_config": native.Attribute.parse(f"{{{settings}}}"),
        }
        call = native.Operation.create(
            "stablehlo.custom_call",
            results=[native.Type.parse(type) for type in types],
            operands=list(operands),
            attributes=attributes,
        )
        return list(call.results)

    def results(self, *values: Value | None) -> list[Value]:
        """As the Torch dialect has them; what is not computed has no elements."""
        results = list(self.op.operation.results)
        return [self._result(value, result.type) for value, result in zip(values, results, strict=True)]

    def _result(self, value: Value | None, type: Type) -> Value:
        if value is None:
            match = TENSOR.fullmatch(str(type))
            if match is None or "0" not in match[1].split(","):
                raise self._unsupported("one of its results is not computed")
            builtin = f"tensor<{match[1].replace(',', 'x')}x{match[2].replace('si', 'i')}>"
            zero = "(0.0, 0.0)" if match[2] in _REAL else "0.0"
            value = self.op.create("stablehlo.constant", (), builtin, value=f"dense<{zero}> : {builtin}")
        return self.op.create("torch_c.from_builtin_tensor", [value], str(type))

    def triangle(self, value: Value, upper: bool) -> Value:
        """Return a triangle of square matrices, with zeros elsewhere."""
        type = self.type(self.sizes)
        row_axis = len(self.batch)
        indices = [
            self.op.create("stablehlo.iota", (), self.type(self.sizes, "i32"), iota_dimension=f"{axis} : i64")
            for axis in (row_axis, row_axis + 1)
        ]
        is_kept = self.op.create(
            "stablehlo.compare",
            indices,
            self.type(self.sizes, "i1"),
            comparison_direction=f"#stablehlo<comparison_direction {'LE' if upper else 'GE'}>",
        )
        zero = "(0.0, 0.0)" if self.element in _REAL else "0.0"
        zeros = self.op.create("stablehlo.constant", (), type, value=f"dense<{zero}> : {type}")
        return self.op.create("stablehlo.select", [is_kept, value, zeros], type)


def _cholesky(op: TorchOp) -> list[Value]:
    matrices = _Matrices(op)
    upper = matrices.boolean(1)
    types = [matrices.type(matrices.sizes), matrices.type(matrices.batch, "i32")]
    factor, info = matrices.call("potrf", [matrices.value], types, uplo="U" if upper else "L")
    return matrices.results(matrices.triangle(factor, upper), info)


def _lu(op: TorchOp) -> list[Value] | None:
    matrices = _Matrices(op)
    if not matrices.boolean(1):
        return None
    count = min(matrices.rows, matrices.columns)
    types = [
        matrices.type(matrices.sizes),
        matrices.type([*matrices.batch, count], "i32"),
        matrices.type(matrices.batch, "i32"),
    ]
    return matrices.results(*matrices.call("getrf", [matrices.value], types))


def _lu_permutation(op: TorchOp) -> list[Value] | None:
    """Return the permutation of ``lu_unpack``; the client computes the triangles."""
    matrices = _Matrices(op)
    if matrices.boolean(2) or not matrices.boolean(3):
        return None
    sizes = [*matrices.batch, matrices.rows, matrices.rows]
    rank = len(sizes)
    indices = [
        op.create("stablehlo.iota", (), matrices.type(sizes, "i32"), iota_dimension=f"{axis} : i64")
        for axis in (rank - 2, rank - 1)
    ]
    is_diagonal = op.create(
        "stablehlo.compare",
        indices,
        matrices.type(sizes, "i1"),
        comparison_direction="#stablehlo<comparison_direction EQ>",
    )
    identity = op.create("stablehlo.convert", [is_diagonal], matrices.type(sizes))
    pivots = op.builtin_tensor(op.operation.operands[1])
    (permuted,) = matrices.call("laswp", [identity, pivots], [matrices.type(sizes)])
    order = ", ".join(map(str, [*range(rank - 2), rank - 1, rank - 2]))
    transposed = op.create(
        "stablehlo.transpose", [permuted], matrices.type(sizes), permutation=f"array<i64: {order}>"
    )
    return matrices.results(transposed, None, None)


def _qr(op: TorchOp) -> list[Value]:
    matrices = _Matrices(op)
    taus = [*matrices.batch, min(matrices.rows, matrices.columns)]
    types = [matrices.type(matrices.sizes), matrices.type(taus)]
    return matrices.results(*matrices.call("geqrf", [matrices.value], types))


def _householder_product(op: TorchOp) -> Value:
    matrices = _Matrices(op)
    taus = op.builtin_tensor(op.operation.operands[1])
    routine = "ungqr" if matrices.element in _REAL else "orgqr"
    types = [matrices.type(matrices.sizes)]
    return matrices.results(*matrices.call(routine, [matrices.value, taus], types))[0]


def _eigh(op: TorchOp) -> list[Value]:
    matrices = _Matrices(op)
    types = [
        matrices.type(matrices.sizes),
        matrices.type(matrices.sizes[:-1], matrices.real),
        matrices.type(matrices.batch, "i32"),
    ]
    routine = "heevd" if matrices.element in _REAL else "syevd"
    letter = matrices.text(1)[:1].upper()
    vectors, values, _ = matrices.call(routine, [matrices.value], types, mode="V", uplo=letter)
    return matrices.results(values, vectors if matrices.boolean(2) else None)


def _svd(op: TorchOp) -> list[Value]:
    matrices = _Matrices(op)
    batch, rows, columns = matrices.batch, matrices.rows, matrices.columns
    count = min(rows, columns)
    is_full, vectors = matrices.boolean(1), matrices.boolean(2)
    left, right = (rows, columns) if is_full and vectors else (count, count)
    types = [
        matrices.type(matrices.sizes),
        matrices.type([*batch, count], matrices.real),
        matrices.type([*batch, rows, left]),
        matrices.type([*batch, right, columns]),
        matrices.type(batch, "i32"),
    ]
    mode = "A" if is_full and vectors else "S"
    _, values, left_vectors, right_vectors, _ = matrices.call("gesdd", [matrices.value], types, mode=mode)
    return matrices.results(left_vectors if vectors else None, values, right_vectors if vectors else None)


def _solve_triangular(op: TorchOp) -> Value:
    matrices = _Matrices(op)
    rhs = op.builtin_tensor(op.operation.operands[1])
    flags = {
        "side": "L" if matrices.boolean(3) else "R",
        "uplo": "U" if matrices.boolean(2) else "L",
        "trans_x": "N",
        "diag": "U" if matrices.boolean(4) else "N",
    }
    return matrices.results(*matrices.call("trsm", [matrices.value, rhs], [str(rhs.type)], **flags))[0]


LINALG: dict[str, Callable[[TorchOp], Value | list[Value] | None]] = {
    "torch.aten.linalg_cholesky_ex": _cholesky,
    "torch.aten.linalg_lu_factor_ex": _lu,
    "torch.aten.lu_unpack": _lu_permutation,
    "torch.aten.geqrf": _qr,
    "torch.aten.linalg_householder_product": _householder_product,
    "torch.aten._linalg_eigh": _eigh,
    "torch.aten._linalg_svd": _svd,
    "torch.aten.linalg_solve_triangular": _solve_triangular,
}
