"""TfIdfVectorizer: counts of the n-grams of a constant list in rows of integers."""

from __future__ import annotations

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import Array, Value, astype, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.indexing import take_constant


@legalize(TfIdfVectorizer=9)
def tf_idf_vectorizer(n: OnnxNode) -> Value:
    """Lower ``TfIdfVectorizer`` of integers: counts of n-grams, weighted by ``mode``, as f32.

    The input has shape (length) or (rows, length); n-grams of strings are unsupported.
    """
    b, x = n.b, n[0]
    if x.rank not in (1, 2):
        n.invalid(f"its input has shape {list(x.dims)}, not (length) or (rows, length)")
    if not n.has("pool_int64s"):
        n.unsupported("n-grams of strings")
    mode = n.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        n.invalid(f"mode {mode!r} does not exist")
    indexes = n.ints("ngram_indexes")
    if sorted(set(indexes)) != sorted(indexes) or min(indexes, default=-1) < 0:
        n.unsupported(f"ngram_indexes = {indexes[:16]}, which are not all distinct")
    rows = b.reshape(b.convert(x, "i64"), (1, *x.dims) if x.rank == 1 else x.dims)
    source = np.full(max(indexes) + 1, -1, np.int64)
    check("bytes of constants", source.nbytes, b.limits.constant_bytes)
    counts = _counts(n, rows, source)
    wide = b.pad(counts, b.full(0, "i64"), [0, 0], [0, 1])
    y = take_constant(n, wide, 1, np.where(source < 0, counts.dims[1], source))
    if mode == "IDF":
        y = b.scalar("minimum", y, 1)
    y = b.convert(y, "f32")
    if mode != "TF" and n.has("weights"):
        y = b.binary("multiply", y, _weights(n, indexes))
    return b.reshape(y, (*x.dims[:-1], len(source)))


def _weights(n: OnnxNode, indexes: list[int]) -> Value:
    weights = astype(np.asarray(n.attributes["weights"]), "f32")
    # The standard indexes weights by n-gram, its reference by position in the result.
    if indexes != list(range(len(weights))):
        n.unsupported("weights of n-grams whose index differs from their position in the pool")
    return constant_value(weights)


def _counts(n: OnnxNode, rows: Value, source: Array) -> Value:
    """Return the counts (row, n-gram), and record in ``source`` the n-gram of each index of the result."""
    pool, starts, indexes = n.ints("pool_int64s"), n.ints("ngram_counts"), n.ints("ngram_indexes")
    shortest, longest, skips = n.int("min_gram_length"), n.int("max_gram_length"), n.int("max_skip_count")
    if min(shortest, longest) < 1 or skips < 0 or starts != sorted(starts) or starts[-1] > len(pool):
        n.invalid(f"ngram_counts = {starts[:16]} of lengths {shortest} to {longest} with {skips} skips")
    columns: list[Value] = []
    first_gram = counted_grams = 0
    for size, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        count = (end - begin) // size
        grams: Array = np.asarray(pool[begin : begin + count * size], np.int64)
        grams = grams.reshape(count, size)
        if count and shortest <= size <= longest:
            if len(np.unique(grams, axis=0)) < count:
                n.unsupported(f"an {size}-gram that occurs twice in the pool")
            check("iterations of a loop", size * (skips + 1), n.b.limits.arguments)
            columns.append(_count_length(n, rows, grams, 1 if size == 1 else skips + 1))
            for i in range(count):
                source[indexes[first_gram + i]] = counted_grams + i
            counted_grams += count
        first_gram += count
    return n.b.concatenate(columns, 1) if columns else n.b.full(0, "i64", (rows.dims[0], 0))


def _count_length(n: OnnxNode, rows: Value, grams: Array, steps: int) -> Value:
    """Count n-grams of one length whose items are 1 to ``steps`` apart."""
    b, (count, size) = n.b, grams.shape
    total = b.full(0, "i64", (rows.dims[0], count))
    for step in range(1, steps + 1):
        positions = rows.dims[1] - step * (size - 1)
        if positions < 1:
            break
        dims = (rows.dims[0], positions, count)
        matches: Value | None = None
        for i in range(size):
            item = b.slice_axis(rows, 1, i * step, i * step + positions)
            gram_items = b.broadcast_in_dim(constant_value(grams[:, i].copy()), [2], dims)
            is_equal = b.compare("EQ", b.broadcast_in_dim(item, [0, 1], dims), gram_items)
            matches = is_equal if matches is None else b.binary("and", matches, is_equal)
        assert matches is not None
        total = b.binary("add", total, b.reduce("add", b.convert(matches, "i64"), [1]))
    return total
