"""Kernels that move: transposition, gather, scatter, scan, sort."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.case import Case

TRANSPOSE, SHUFFLE = "transpose", "gather and scan"


def cases() -> list[Case]:
    """Named by what they compute and by their sizes."""
    return [
        *(transpose(rows, columns) for rows, columns in ((64, 64), (1024, 1024), (511, 1001))),
        transpose_add(512),
        channels_last(8, 64, 56),
        gather(50257, 768, 512),
        scatter_add(50257, 768, 512),
        cumsum(512, 1024),
        sort(512, 1024),
        top_k(512, 1024, 8),
    ]


def transpose(rows: int, columns: int) -> Case:
    return Case(
        f"transpose/{rows}x{columns}",
        TRANSPOSE,
        (f"f32[{rows},{columns}]",),
        lambda x: x.T,
        lambda x: x.T.contiguous(),
        lambda out, x: np.copyto(out[0], x.T),
        quick=rows == 1024,
    )


def transpose_add(size: int) -> Case:
    return Case(
        f"transpose_add/{size}x{size}",
        TRANSPOSE,
        (f"f32[{size},{size}]",) * 2,
        lambda x, y: x.T + y,
        lambda x, y: x.T + y,
        lambda out, x, y: np.add(x.T, y, out=out[0]),
    )


def channels_last(batch: int, channels: int, side: int) -> Case:
    return Case(
        f"channels_last/{batch}x{channels}x{side}x{side}",
        TRANSPOSE,
        (f"f32[{batch},{channels},{side},{side}]",),
        lambda x: x.transpose(0, 2, 3, 1),
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        lambda out, x: np.copyto(out[0], x.transpose(0, 2, 3, 1)),
    )


def gather(words: int, width: int, count: int) -> Case:
    def function(table: Any, index: Any) -> Any:
        return table.at[index].get(mode="promise_in_bounds")

    return Case(
        f"gather/{count} of {words}x{width}",
        SHUFFLE,
        (f"f32[{words},{width}]", f"i32<{words}[{count}]"),
        function,
        lambda table, index: table[index],
        lambda out, table, index: np.take(table, index, 0, out=out[0], mode="clip"),
        traffic=2 * count * width * 4,
        quick=True,
    )


def scatter_add(words: int, width: int, count: int) -> Case:
    def function(index: Any, rows: Any) -> Any:
        return jnp.zeros((words, width), rows.dtype).at[index].add(rows)

    def twin(index: Any, rows: Any) -> Any:
        return rows.new_zeros((words, width)).index_add(0, index, rows)

    args = (f"i32<{words}[{count}]", f"f32[{count},{width}]")
    return Case(f"scatter_add/{count} in {words}x{width}", SHUFFLE, args, function, twin)


def cumsum(rows: int, columns: int) -> Case:
    return Case(
        f"cumsum/{rows}x{columns}",
        SHUFFLE,
        (f"f32[{rows},{columns}]",),
        lambda x: jax.lax.cumsum(x, 1),
        lambda x: x.cumsum(1),
        lambda out, x: np.cumsum(x, 1, out=out[0]),
        flops=float(rows * columns),
    )


def sort(rows: int, columns: int) -> Case:
    return Case(
        f"sort/{rows}x{columns}",
        SHUFFLE,
        (f"f32[{rows},{columns}]",),
        lambda x: jnp.sort(x, 1),
        lambda x: x.sort(1).values,
        lambda out, x: np.sort(x, 1),
    )


def top_k(rows: int, columns: int, count: int) -> Case:
    return Case(
        f"top_k/{count} of {rows}x{columns}",
        SHUFFLE,
        (f"f32[{rows},{columns}]",),
        lambda x: jax.lax.top_k(x, count)[0],
        lambda x: x.topk(count, 1).values,
    )
