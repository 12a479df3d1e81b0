"""What JAX asks LAPACK: factors multiply to the matrix, and are NumPy's where they are unique."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kcache_compiler import canonicalize
from kcache_compiler.errors import UnsupportedOp
from tests.ops.harness.lapack_programs import LETTERS, Shape, adjoint, called, close, random


def _lu(dtype: str, matrix: np.ndarray) -> None:
    *batch, rows, columns = matrix.shape
    count = min(rows, columns)
    kinds = [(dtype, matrix.shape), ("i32", (*batch, count)), ("i32", tuple(batch))]
    packed, pivots, info = called(dtype, "getrf", [matrix], kinds)
    assert not info.any()
    for at in np.ndindex(*batch):
        lower = np.tril(packed[at][:, :count], -1) + np.eye(rows, count, dtype=packed.dtype)
        moved = matrix[at].copy()
        for row, other in enumerate(pivots[at]):
            moved[[row, other - 1]] = moved[[other - 1, row]]
        close(dtype, lower @ np.triu(packed[at][:count]), moved)
        assert dtype.startswith("c") or np.abs(lower).max() <= 1


def _qr(dtype: str, matrix: np.ndarray) -> None:
    *batch, rows, columns = matrix.shape
    count = min(rows, columns)
    packed, taus = called(dtype, "geqrf", [matrix], [(dtype, matrix.shape), (dtype, (*batch, count))])
    name = "ungqr" if dtype.startswith("c") else "orgqr"
    shape = (*batch, rows, count)
    (q,) = called(dtype, name, [np.ascontiguousarray(packed[..., :count]), taus], [(dtype, shape)])
    expected_q, expected_r = np.linalg.qr(matrix)
    close(dtype, np.triu(packed)[..., :count, :], expected_r)
    close(dtype, q, expected_q)


def _eigen(dtype: str, matrix: np.ndarray, letter: str = "L") -> None:
    *batch, size = matrix.shape[:-1]
    name = "heevd" if dtype.startswith("c") else "syevd"
    real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    kinds = [(dtype, matrix.shape), (real, (*batch, size)), ("i32", tuple(batch))]
    vectors, values, info = called(dtype, name, [matrix], kinds, f"mode=V uplo={letter}")
    half = np.tril(matrix, -1) if letter == "L" else np.triu(matrix, 1)
    whole = half + adjoint(half) + np.real(np.einsum("...ii->...i", matrix))[..., None] * np.eye(size)
    assert not info.any()
    close(dtype, values, np.linalg.eigvalsh(whole))
    close(dtype, (vectors * values[..., None, :]) @ adjoint(vectors), whole)
    close(dtype, adjoint(vectors) @ vectors, np.broadcast_to(np.eye(size), matrix.shape))


def _singular(dtype: str, matrix: np.ndarray, mode: str) -> None:
    *batch, rows, columns = matrix.shape
    count = min(rows, columns)
    real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    left, right = (rows, columns) if mode == "A" else (count, count)
    kinds: list[tuple[str, Shape]] = [
        (dtype, matrix.shape),
        (real, (*batch, count)),
        (dtype, (*batch, rows, left)),
        (dtype, (*batch, right, columns)),
        ("i32", tuple(batch)),
    ]
    _, values, u, v, info = called(dtype, "gesdd", [matrix], kinds, f"mode={mode}")
    assert not info.any()
    close(dtype, values, np.linalg.svd(matrix, compute_uv=False))
    close(dtype, adjoint(u) @ u, np.broadcast_to(np.eye(left), (*batch, left, left)))
    close(dtype, v @ adjoint(v), np.broadcast_to(np.eye(right), (*batch, right, right)))
    close(dtype, (u[..., :count] * values[..., None, :]) @ v[..., :count, :], matrix)


def _tridiagonal(dtype: str, shape: Shape) -> None:
    """Systems of which some rows change places; what stands outside of the matrix is not read."""
    *batch, size, _ = shape
    under, middle, over = (random(dtype, *batch, size, seed=seed) for seed in range(3))
    under[..., 0] = over[..., -1] = np.nan
    wanted = random(dtype, *shape, seed=4)
    kinds = [(dtype, under.shape)] * 3 + [(dtype, shape), ("i32", tuple(batch))]
    *_, solved, info = called(dtype, "gtsv", [under, middle, over, wanted], kinds)
    assert not info.any()
    for at in np.ndindex(*batch):
        matrix = np.diag(middle[at]) + np.diag(under[at][1:], -1) + np.diag(over[at][:-1], 1)
        exact = np.linalg.solve(matrix.astype(np.complex128), wanted[at].astype(np.complex128))
        close(dtype, matrix @ solved[at], wanted[at] if np.abs(exact).max() < 100 else matrix @ exact)


def _deficient(dtype: str, rows: int, columns: int) -> np.ndarray:
    return random(dtype, rows, 1) @ random(dtype, 1, columns, seed=1)


def test_factors() -> None:
    _lu("f32", random("f32", 2, 4, 3))


@pytest.mark.parametrize("letter", ["L", "U"])
def test_the_other_triangle_of_a_cholesky_factor_stays(letter: str) -> None:
    matrix = random("f32", 2, 3, 3)
    matrix = (matrix @ adjoint(matrix) + 3 * np.eye(3)).astype("f4")
    keep, factor = (np.triu, np.tril) if letter == "L" else (np.tril, np.triu)
    matrix += keep(random("f32", 3, 3, seed=1), 1 if letter == "L" else -1)
    output, _ = called("f32", "potrf", [matrix], [("f32", (2, 3, 3)), ("i32", (2,))], f"uplo={letter}")
    out = 1 if letter == "L" else -1
    np.testing.assert_array_equal(keep(output, out), keep(matrix, out))
    close(
        "f32",
        factor(output) @ adjoint(factor(output))
        if letter == "L"
        else adjoint(factor(output)) @ factor(output),
        factor(matrix, 0) + adjoint(factor(matrix, -out)),
    )


def test_matrices_without_elements_fail_nowhere() -> None:
    output, info = called(
        "f32", "potrf", [random("f32", 3, 0, 0)], [("f32", (3, 0, 0)), ("i32", (3,))], "uplo=L"
    )
    assert (output.shape, info.tolist()) == ((3, 0, 0), [0, 0, 0])
    kinds = [("f32", (2, 0, 4)), ("i32", (2, 0)), ("i32", (2,))]
    assert called("f32", "getrf", [random("f32", 2, 0, 4)], kinds)[2].tolist() == [0, 0]


def test_tridiagonal_systems() -> None:
    _tridiagonal("f32", (2, 5, 3))


def test_a_tridiagonal_system_says_which_pivot_is_0() -> None:
    rows = np.array([[2, 2, 2], [0, 0, 1], [3, 0, 4], [0, 5, 0]], np.float32)[None].repeat(2, 0)
    under, middle, over = (
        np.array([diagonal, two], "f4")
        for diagonal, two in [
            ([0, 1, 0, 0], [0, 1, 1, 1]),
            ([1, 2, 0, 1], [0, 0, 0, 0]),
            ([2, 1, 1, 0], [1, 1, 1, 0]),
        ]
    )
    kinds = [("f32", (2, 4))] * 3 + [("f32", (2, 4, 3)), ("i32", (2,))]
    *_, solved, info = called("f32", "gtsv", [under, middle, over, rows], kinds)
    assert info.tolist() == [2, 0]
    matrix = np.diag([1, 1, 1], 1) + np.diag([1, 1, 1], -1)
    close("f32", matrix @ solved[1], rows[1])


def test_diagonals_of_other_lengths_are_rejected() -> None:
    short, long = random("f32", 3), random("f32", 4)
    kinds = [("f32", (3,)), ("f32", (4,)), ("f32", (3,)), ("f32", (4, 1)), ("i32", ())]
    with pytest.raises(UnsupportedOp, match="lapack_sgtsv_ffi"):
        called("f32", "gtsv", [short, long, short, long[:, None]], kinds)


def test_rotations() -> None:
    _eigen("f32", random("f32", 2, 3, 3))


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5), (6, 3), (2, 2, 4, 4), (17, 17), (40, 9)], ids=str)
def test_factors_of_sizes(dtype: str, shape: Shape) -> None:
    _lu(dtype, random(dtype, *shape))
    _qr(dtype, random(dtype, *shape))


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 1), (2, 2, 7, 2), (64, 5)], ids=str)
def test_tridiagonal_systems_of_sizes(dtype: str, shape: Shape) -> None:
    _tridiagonal(dtype, shape)


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 31])
def test_eigenvalues_of_sizes(dtype: str, size: int) -> None:
    _eigen(dtype, random(dtype, size, size), "U")
    _eigen(dtype, random(dtype, 2, size, size), "L")
    _eigen(dtype, np.zeros_like(random(dtype, size, size)))
    _eigen(dtype, np.ones_like(random(dtype, size, size)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("mode", ["A", "S"])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 5), (6, 3), (2, 3, 3), (1, 4), (20, 7)], ids=str)
def test_singular_values_of_sizes(dtype: str, mode: str, shape: Shape) -> None:
    _singular(dtype, random(dtype, *shape), mode)
    _singular(dtype, np.zeros_like(random(dtype, *shape)), mode)
    _singular(dtype, _deficient(dtype, *shape[-2:]), mode)


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
def test_triangular_systems(dtype: str) -> None:
    matrix, wanted = random(dtype, 4, 4) + 4 * np.eye(4, dtype="f4"), random(dtype, 4, 4, seed=1)
    matrix = matrix.astype(wanted.dtype)
    for side, uplo, turn, diagonal in itertools.product("LR", "LU", "NTC", "NU"):
        letters = f"side={side} uplo={uplo} trans_x={turn} diag={diagonal}"
        (got,) = called(dtype, "trsm", [matrix, wanted], [(dtype, wanted.shape)], letters)
        triangle = np.tril(matrix) if uplo == "L" else np.triu(matrix)
        if diagonal == "U":
            triangle = triangle - np.diag(np.diag(triangle)) + np.eye(4)
        turned = {"N": triangle, "T": triangle.T, "C": adjoint(triangle)}[turn]
        close(dtype, turned @ got if side == "L" else got @ turned, wanted)


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("letter", ["L", "U"])
def test_cholesky_says_where_it_fails(dtype: str, letter: str) -> None:
    good = random(dtype, 4, 4)
    good = (good @ adjoint(good) + 4 * np.eye(4)).astype(good.dtype)
    bad = good.copy()
    bad[2, 2] = -1
    both = np.stack([good, bad])
    factor, info = called(dtype, "potrf", [both], [(dtype, both.shape), ("i32", (2,))], f"uplo={letter}")
    assert info.tolist() == [0, 3]
    triangle = np.tril(factor[0]) if letter == "L" else adjoint(np.triu(factor[0]))
    close(dtype, triangle @ adjoint(triangle), good)


@pytest.mark.long
def test_pivots_of_zero_and_numbers_that_are_not_finite() -> None:
    singular = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
    kinds = [("f32", (3, 3)), ("i32", (3,)), ("i32", ())]
    packed, pivots, info = called("f32", "getrf", [singular], kinds)
    assert (int(info), pivots.tolist()) == (3, [2, 3, 3])
    assert np.isfinite(packed).all()
    nan = np.full((3, 3), np.nan, np.float32)
    kinds = [("f32", (3, 3)), ("f32", (3,)), ("i32", ())]
    assert called("f32", "syevd", [nan], kinds, "mode=V uplo=L")[2] == 1
    kinds = [("f32", (3, 3)), ("f32", (3,)), ("f32", (3, 3)), ("f32", (3, 3)), ("i32", ())]
    assert called("f32", "gesdd", [nan], kinds, "mode=S")[4] == 1


@pytest.mark.long
@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_tridiagonal_forms(dtype: str, size: int) -> None:
    """The same eigenvalues; the form of a Hermitian matrix is real."""
    matrix = random(dtype, size, size)
    name = "hetrd" if dtype.startswith("c") else "sytrd"
    real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    kinds: list[tuple[str, Shape]] = [
        (dtype, matrix.shape),
        (real, (size,)),
        (real, (size - 1,)),
        (dtype, (size - 1,)),
        ("i32", ()),
    ]
    packed, middle, under, _, info = called(dtype, name, [matrix], kinds, "uplo=L")
    whole = np.tril(matrix, -1) + adjoint(np.tril(matrix, -1)) + np.diag(np.diag(matrix).real)
    form = np.diag(middle) + np.diag(under, -1) + np.diag(under, 1)
    close(dtype, np.linalg.eigvalsh(form), np.linalg.eigvalsh(whole))
    close(dtype, np.triu(packed, 1), np.triu(matrix, 1))
    assert info == 0


def test_letters_are_part_of_the_key() -> None:
    def digest(letter: str) -> bytes:
        text = f"""func.func @main(%a: tensor<3x3xf32>) -> tensor<3x3xf32> {{
  %r:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {{mhlo.backend_config = {{uplo = {ord(letter)} : ui8}}}}
    : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>)
  return %r#0 : tensor<3x3xf32>
}}"""
        return canonicalize(text.encode(), "stablehlo").spec_digest

    assert digest("L") != digest("U")


def test_letters_that_are_missing_or_unknown_are_rejected() -> None:
    matrix = random("f32", 3, 3)
    kinds = [("f32", (3, 3)), ("i32", ())]
    for letters in ("", "uplo=X"):
        with pytest.raises(UnsupportedOp, match="lapack_spotrf_ffi"):
            called("f32", "potrf", [matrix], kinds, letters)
    with pytest.raises(UnsupportedOp, match="lapack_sgeev_ffi"):
        called("f32", "geev", [matrix], kinds)


def test_matrices_of_one_row_again_and_again_and_of_numbers_far_from_one() -> None:
    """Columns that are nothing but rounding, and squares that are no numbers any more."""
    far = random("f32", 3, 3)
    matrices = np.stack([np.ones((3, 3), np.float32), far * np.float32(1e-25), far * np.float32(1e25)])
    whole, few = ("f32", (3, 3, 3)), ("f32", (3, 3))
    outputs = called("f32", "gesdd", [matrices], [whole, few, whole, whole, ("i32", (3,))], "mode=S")
    for matrix, values, left, right in zip(matrices, *outputs[1:4], strict=True):
        expected = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
        np.testing.assert_allclose(values, expected, rtol=0, atol=2e-6 * expected[0])
        close("f32", left.T @ left, np.eye(3))
        close("f32", right @ right.T, np.eye(3))


def test_eigenvectors_of_small_eigenvalues_are_orthogonal() -> None:
    """And the triangle that is not asked for is not read."""
    turned = np.linalg.qr(random("f64", 5, 5))[0]
    matrix = ((turned * np.logspace(0, -12, 5)) @ turned.T).astype(np.float32)
    matrix[np.triu_indices(5, 1)] = np.nan
    kinds = [("f32", (5, 5)), ("f32", (5,)), ("i32", ())]
    vectors, _, info = called("f32", "syevd", [matrix], kinds, "mode=V uplo=L")
    close("f32", vectors.T @ vectors, np.eye(5))
    assert info == 0
