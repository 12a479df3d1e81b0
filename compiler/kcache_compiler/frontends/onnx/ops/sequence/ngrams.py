"""TfIdfVectorizer: how often each n-gram of a known list stands in rows of integers."""

from __future__ import annotations

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import Array, Value, astype, known
from kcache_compiler.frontends.onnx.ops.indexing import taken
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(TfIdfVectorizer=9)
def tf_idf_vectorizer(n: Site) -> Value:
    b, x = n.b, n[0]
    if x.rank not in (1, 2):
        n.invalid(f"its input has shape {list(x.dims)}, not (length) or (rows, length)")
    if not n.has("pool_int64s"):
        n.unsupported("n-grams of strings")
    mode = n.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        n.invalid(f"mode {mode!r} is none")
    indexes = n.ints("ngram_indexes")
    if sorted(set(indexes)) != sorted(indexes) or min(indexes, default=-1) < 0:
        n.unsupported(f"ngram_indexes = {indexes[:16]}, which are not all distinct")
    rows = b.reshape(b.convert(x, "i64"), (1, *x.dims) if x.rank == 1 else x.dims)
    source = np.full(max(indexes) + 1, -1, np.int64)
    check("bytes of constants", source.nbytes, b.limits.constant_bytes)
    counts = _counts(n, rows, source)
    wide = b.pad(counts, b.full(0, "i64"), [0, 0], [0, 1])
    y = taken(n, wide, 1, np.where(source < 0, counts.dims[1], source))
    if mode == "IDF":
        y = b.scalar("minimum", y, 1)
    y = b.convert(y, "f32")
    if mode != "TF" and n.has("weights"):
        y = b.binary("multiply", y, _weights(n, indexes))
    return b.reshape(y, (*x.dims[:-1], len(source)))


def _weights(n: Site, indexes: list[int]) -> Value:
    weights = astype(np.asarray(n.attributes["weights"]), "f32")
    # The standard counts them by n-gram, its reference by the place in the result.
    if indexes != list(range(len(weights))):
        n.unsupported("weights, where an n-gram's index is not its place in the pool")
    return known(weights)


def _counts(n: Site, rows: Value, source: Array) -> Value:
    """Return (row, n-gram), and note in ``source`` which n-gram each index of the result is of."""
    pool, starts, indexes = n.ints("pool_int64s"), n.ints("ngram_counts"), n.ints("ngram_indexes")
    least, most, skips = n.int("min_gram_length"), n.int("max_gram_length"), n.int("max_skip_count")
    if min(least, most) < 1 or skips < 0 or starts != sorted(starts) or starts[-1] > len(pool):
        n.invalid(f"ngram_counts = {starts[:16]} of lengths {least} to {most} with {skips} skips")
    parts: list[Value] = []
    first = made = 0
    for size, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        count = (stop - start) // size
        grams: Array = np.asarray(pool[start : start + count * size], np.int64)
        grams = grams.reshape(count, size)
        if count and least <= size <= most:
            if len(np.unique(grams, axis=0)) < count:
                n.unsupported(f"an {size}-gram that stands in the pool twice")
            check("turns of a loop", size * (skips + 1), n.b.limits.arguments)
            parts.append(_of_size(n, rows, grams, 1 if size == 1 else skips + 1))
            for i in range(count):
                source[indexes[first + i]] = made + i
            made += count
        first += count
    return n.b.concatenate(parts, 1) if parts else n.b.full(0, "i64", (rows.dims[0], 0))


def _of_size(n: Site, rows: Value, grams: Array, steps: int) -> Value:
    """Count n-grams of one length whose items lie 1 to ``steps`` apart."""
    b, (count, size) = n.b, grams.shape
    total = b.full(0, "i64", (rows.dims[0], count))
    for step in range(1, steps + 1):
        places = rows.dims[1] - step * (size - 1)
        if places < 1:
            break
        dims = (rows.dims[0], places, count)
        found: Value | None = None
        for i in range(size):
            item = b.along(rows, 1, i * step, i * step + places)
            wanted = b.broadcast_in_dim(known(grams[:, i].copy()), [2], dims)
            same = b.compare("EQ", b.broadcast_in_dim(item, [0, 1], dims), wanted)
            found = same if found is None else b.binary("and", found, same)
        assert found is not None
        total = b.binary("add", total, b.reduce("add", b.convert(found, "i64"), [1]))
    return total
