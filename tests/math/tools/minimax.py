"""Minimax polynomials by the Remez exchange, in multiple precision.

`remez(f, low, high, degree, weight)` finds the polynomial p that minimizes the largest
|weight(x) * (f(x) - p(x))| on [low, high] and returns (coefficients, largest weighted error).
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

Real = Callable[[mpf], mpf]


def _polynomial(coefficients: list[mpf], x: mpf) -> mpf:
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def _solve(points: list[mpf], values: list[mpf], weights: list[mpf], degree: int) -> list[mpf]:
    rows = mp.matrix(degree + 2, degree + 2)
    for i, x in enumerate(points):
        for j in range(degree + 1):
            rows[i, j] = x**j
        rows[i, degree + 1] = (-1) ** i / weights[i]
    solution = mp.lu_solve(rows, mp.matrix(values))
    return [solution[i] for i in range(degree + 1)]


def _extremes(grid: list[mpf], errors: list[mpf], count: int) -> list[int]:
    """Indices of alternating extremes of ``errors``, at most ``count``, the largest run of them."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def remez(
    f: Real, low: float, high: float, degree: int, weight: Real = lambda x: mpf(1)
) -> tuple[list[mpf], mpf]:
    low_, high_ = mpf(low), mpf(high)
    middle, half = (low_ + high_) / 2, (high_ - low_) / 2
    size = 24 * (degree + 2)
    grid = [middle - half * mp.cos(mp.pi * i / size) for i in range(size + 1)]
    values, weights = [f(x) for x in grid], [abs(weight(x)) for x in grid]
    heaviest = max(weights)
    chosen = [round(size * i / (degree + 1)) for i in range(degree + 2)]
    # A point where the weight vanishes says nothing: start beside it.
    chosen = [i if weights[i] > heaviest / 10**6 else i - 5 if i == size else i + 5 for i in chosen]
    best: list[mpf] = []
    least = mpf("inf")
    for _ in range(30):
        trial = _solve(
            [grid[i] for i in chosen], [values[i] for i in chosen], [weights[i] for i in chosen], degree
        )
        errors = [w * (v - _polynomial(trial, x)) for x, v, w in zip(grid, values, weights, strict=True)]
        worst = max(abs(e) for e in errors)
        if worst < least:
            best, least = trial, worst
        extremes = _extremes(grid, errors, degree + 2)
        if len(extremes) < degree + 2 or extremes == chosen:
            break
        chosen = extremes
    return best, least
