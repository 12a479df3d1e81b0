"""Factorizations of ``torch.linalg`` as calls of LAPACK like JAX's, whose definitions the compiler has.

The client takes the other functions of ``torch.linalg`` apart into these. Where a factorization fails,
``info`` says so as in PyTorch; nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.torch.site import TENSOR, Site, name_of, whole_numbers
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}
_REAL = {"complex<f32>": "f32", "complex<f64>": "f64"}


class _Matrices:
    """The operation's first operand: matrices of static sizes, as a builtin tensor."""

    def __init__(self, site: Site) -> None:
        self.site = site
        operation = site.operation
        match = TENSOR.fullmatch(str(operation.operands[0].type))
        sizes = match[1].split(",") if match and match[1] else []
        if match is None or len(sizes) < 2 or not all(size.isdigit() for size in sizes):
            raise self._refused("it takes matrices of known sizes")
        self.element = match[2]
        if self.element not in _LETTERS:
            raise self._refused(
                f"it computes in f32, f64 and complex numbers of these, not in {self.element}"
            )
        self.sizes = [int(size) for size in sizes]
        if 0 in self.sizes:
            raise self._refused("its matrices have no elements")
        *self.batch, self.rows, self.columns = self.sizes
        self.real = _REAL.get(self.element, self.element)
        self.value = site.whole(operation.operands[0])

    def _refused(self, reason: str) -> UnsupportedOp:
        operation = self.site.operation
        return UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))

    def flag(self, position: int) -> bool:
        """A truth value among the operands."""
        found = whole_numbers(self.site.operation.operands[position])
        if found is None:
            raise self._refused(f"its operand {position} is not a constant")
        return bool(found[0])

    def text(self, position: int) -> str:
        """A string among the operands."""
        owner = self.site.operation.operands[position].owner
        if getattr(owner, "name", "") != "torch.constant.str":
            raise self._refused(f"its operand {position} is not a constant")
        text: str = owner.attributes["value"].value
        return text

    def type(self, sizes: Sequence[int], element: str = "") -> str:
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element or self.element}>"

    def call(
        self, routine: str, operands: Sequence[Native], types: Sequence[str], **letters: str
    ) -> list[Native]:
        """The results of a call of LAPACK."""
        native = self.site.native
        settings = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items())
        attributes = {
            "call_target_name": native.StringAttr.get(f"lapack_{_LETTERS[self.element]}{routine}_ffi"),
            "mhlo.backend_config": native.Attribute.parse(f"{{{settings}}}"),
        }
        made = native.Operation.create(
            "stablehlo.custom_call",
            results=[native.Type.parse(type) for type in types],
            operands=list(operands),
            attributes=attributes,
        )
        return list(made.results)

    def results(self, *values: Native | None) -> list[Native]:
        """As the Torch dialect has them; what is not computed has no elements."""
        results = list(self.site.operation.results)
        return [self._result(value, result.type) for value, result in zip(values, results, strict=True)]

    def _result(self, value: Native | None, type: Native) -> Native:
        if value is None:
            match = TENSOR.fullmatch(str(type))
            if match is None or "0" not in match[1].split(","):
                raise self._refused("it has a result that is not computed")
            builtin = f"tensor<{match[1].replace(',', 'x')}x{match[2].replace('si', 'i')}>"
            zero = "(0.0, 0.0)" if match[2] in _REAL else "0.0"
            value = self.site.op("stablehlo.constant", (), builtin, value=f"dense<{zero}> : {builtin}")
        return self.site.op("torch_c.from_builtin_tensor", [value], str(type))

    def triangle(self, value: Native, upper: bool) -> Native:
        """A triangle of square matrices, and zeros beside it."""
        type = self.type(self.sizes)
        first = len(self.batch)
        places = [
            self.site.op("stablehlo.iota", (), self.type(self.sizes, "i32"), iota_dimension=f"{axis} : i64")
            for axis in (first, first + 1)
        ]
        kept = self.site.op(
            "stablehlo.compare",
            places,
            self.type(self.sizes, "i1"),
            comparison_direction=f"#stablehlo<comparison_direction {'LE' if upper else 'GE'}>",
        )
        zero = "(0.0, 0.0)" if self.element in _REAL else "0.0"
        zeros = self.site.op("stablehlo.constant", (), type, value=f"dense<{zero}> : {type}")
        return self.site.op("stablehlo.select", [kept, value, zeros], type)


def _cholesky(site: Site) -> list[Native]:
    matrices = _Matrices(site)
    upper = matrices.flag(1)
    types = [matrices.type(matrices.sizes), matrices.type(matrices.batch, "i32")]
    factor, info = matrices.call("potrf", [matrices.value], types, uplo="U" if upper else "L")
    return matrices.results(matrices.triangle(factor, upper), info)


def _lu(site: Site) -> list[Native] | None:
    matrices = _Matrices(site)
    if not matrices.flag(1):
        return None
    count = min(matrices.rows, matrices.columns)
    types = [
        matrices.type(matrices.sizes),
        matrices.type([*matrices.batch, count], "i32"),
        matrices.type(matrices.batch, "i32"),
    ]
    return matrices.results(*matrices.call("getrf", [matrices.value], types))


def _permutation(site: Site) -> list[Native] | None:
    """The permutation of ``lu_unpack`` alone: the client takes the triangles itself."""
    matrices = _Matrices(site)
    if matrices.flag(2) or not matrices.flag(3):
        return None
    sizes = [*matrices.batch, matrices.rows, matrices.rows]
    rank = len(sizes)
    places = [
        site.op("stablehlo.iota", (), matrices.type(sizes, "i32"), iota_dimension=f"{axis} : i64")
        for axis in (rank - 2, rank - 1)
    ]
    same = site.op(
        "stablehlo.compare",
        places,
        matrices.type(sizes, "i1"),
        comparison_direction="#stablehlo<comparison_direction EQ>",
    )
    identity = site.op("stablehlo.convert", [same], matrices.type(sizes))
    pivots = site.whole(site.operation.operands[1])
    (moved,) = matrices.call("laswp", [identity, pivots], [matrices.type(sizes)])
    order = ", ".join(map(str, [*range(rank - 2), rank - 1, rank - 2]))
    turned = site.op("stablehlo.transpose", [moved], matrices.type(sizes), permutation=f"array<i64: {order}>")
    return matrices.results(turned, None, None)


def _qr(site: Site) -> list[Native]:
    matrices = _Matrices(site)
    taus = [*matrices.batch, min(matrices.rows, matrices.columns)]
    types = [matrices.type(matrices.sizes), matrices.type(taus)]
    return matrices.results(*matrices.call("geqrf", [matrices.value], types))


def _orthogonal(site: Site) -> Native:
    matrices = _Matrices(site)
    taus = site.whole(site.operation.operands[1])
    routine = "ungqr" if matrices.element in _REAL else "orgqr"
    types = [matrices.type(matrices.sizes)]
    return matrices.results(*matrices.call(routine, [matrices.value, taus], types))[0]


def _eigen(site: Site) -> list[Native]:
    matrices = _Matrices(site)
    types = [
        matrices.type(matrices.sizes),
        matrices.type(matrices.sizes[:-1], matrices.real),
        matrices.type(matrices.batch, "i32"),
    ]
    routine = "heevd" if matrices.element in _REAL else "syevd"
    letter = matrices.text(1)[:1].upper()
    vectors, values, _ = matrices.call(routine, [matrices.value], types, mode="V", uplo=letter)
    return matrices.results(values, vectors if matrices.flag(2) else None)


def _singular(site: Site) -> list[Native]:
    matrices = _Matrices(site)
    batch, rows, columns = matrices.batch, matrices.rows, matrices.columns
    count = min(rows, columns)
    whole, vectors = matrices.flag(1), matrices.flag(2)
    left, right = (rows, columns) if whole and vectors else (count, count)
    types = [
        matrices.type(matrices.sizes),
        matrices.type([*batch, count], matrices.real),
        matrices.type([*batch, rows, left]),
        matrices.type([*batch, right, columns]),
        matrices.type(batch, "i32"),
    ]
    mode = "A" if whole and vectors else "S"
    _, values, lefts, rights, _ = matrices.call("gesdd", [matrices.value], types, mode=mode)
    return matrices.results(lefts if vectors else None, values, rights if vectors else None)


def _triangular(site: Site) -> Native:
    matrices = _Matrices(site)
    other = site.whole(site.operation.operands[1])
    letters = {
        "side": "L" if matrices.flag(3) else "R",
        "uplo": "U" if matrices.flag(2) else "L",
        "trans_x": "N",
        "diag": "U" if matrices.flag(4) else "N",
    }
    return matrices.results(*matrices.call("trsm", [matrices.value, other], [str(other.type)], **letters))[0]


LINALG: dict[str, Callable[[Site], Native | None]] = {
    "torch.aten.linalg_cholesky_ex": _cholesky,
    "torch.aten.linalg_lu_factor_ex": _lu,
    "torch.aten.lu_unpack": _permutation,
    "torch.aten.geqrf": _qr,
    "torch.aten.linalg_householder_product": _orthogonal,
    "torch.aten._linalg_eigh": _eigen,
    "torch.aten._linalg_svd": _singular,
    "torch.aten.linalg_solve_triangular": _triangular,
}
