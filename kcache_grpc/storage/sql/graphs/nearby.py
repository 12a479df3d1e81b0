"""Similar specs and kernels, on SQL."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, bindparam, case, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.nearby import WEIGHTS, CompileTime, NearbyStore, NearKernel, SpecSize
from kcache_grpc.storage.records import (
    Ingredients,
    KernelRecord,
    MappingRecord,
    Namespace,
    SignedBytes,
)
from kcache_grpc.storage.schema import graph_mappings, kernel_ingredients, kernels, specs
from kcache_grpc.storage.sql.engine.bulk import batches
from kcache_grpc.storage.sql.engine.database import SqlPart

_MAPPINGS = (
    select(
        graph_mappings.c.program_digest,
        graph_mappings.c.numerics,
        graph_mappings.c.key,
        graph_mappings.c.binding,
        graph_mappings.c.signature,
        graph_mappings.c.epoch,
        graph_mappings.c.created_at,
    )
    .where(
        graph_mappings.c.namespace_id == bindparam("ns"),
        graph_mappings.c.key == bindparam("key"),
        graph_mappings.c.epoch == bindparam("epoch"),
    )
    .order_by(graph_mappings.c.id)
    .limit(bindparam("most"))
)

_SIZES = select(specs.c.key, specs.c.text_size).where(specs.c.namespace_id == bindparam("ns"))
#: The size beyond which larger ones are not needed; NULL: there are fewer than that.
_FARTHEST = (
    select(specs.c.text_size)
    .where(specs.c.namespace_id == bindparam("ns"), specs.c.text_size >= bindparam("size"))
    .order_by(specs.c.text_size)
    .offset(bindparam("last"))
    .limit(1)
    .scalar_subquery()
)
#: Fewer than are wanted, so that their order does not matter, and then the youngest of those farthest off.
_LARGER = _SIZES.where(
    specs.c.text_size >= bindparam("size"), specs.c.text_size < func.coalesce(_FARTHEST, checks.MAX_INT)
)
_AS_FAR = _SIZES.where(specs.c.text_size == _FARTHEST).order_by(specs.c.key.desc()).limit(bindparam("most"))
_SMALLER = (
    _SIZES.where(specs.c.text_size < bindparam("size"))
    .order_by(specs.c.text_size.desc(), specs.c.key.desc())
    .limit(bindparam("most"))
)

_PARTS: list[ColumnElement[int]] = [
    case((kernels.c[name] != bindparam(name), weight), else_=0) for name, weight in WEIGHTS.items()
]
_DISTANCE = functools.reduce(lambda total, part: total + part, _PARTS).label("distance")
_NEAR_KERNELS = (
    select(
        kernels.c.id,
        kernels.c.kernel_digest,
        kernels.c.key,
        kernels.c.arg_spec,
        kernels.c.guard,
        kernels.c.target,
        kernels.c.options,
        kernels.c.toolchain,
        kernels.c.epoch,
        kernels.c.created_at,
        _DISTANCE,
    )
    .where(kernels.c.namespace_id == bindparam("ns"), kernels.c.key == bindparam("key"))
    .order_by(_DISTANCE, kernels.c.id.desc())
    .limit(bindparam("most"))
)
_INGREDIENTS_OF = (
    select(kernel_ingredients.c.kernel_id, kernel_ingredients.c.name, kernel_ingredients.c.value)
    .where(kernel_ingredients.c.kernel_id.in_(bindparam("kernels", expanding=True)))
    .order_by(kernel_ingredients.c.kernel_id, kernel_ingredients.c.position)
)

#: By an index that begins with namespace and key, up to the limit: the rest of a key's kernels is not read.
_TIMES = (
    select(kernels.c.target, kernels.c.options, kernels.c.toolchain, kernels.c.compile_us)
    .where(kernels.c.namespace_id == bindparam("ns"), kernels.c.key == bindparam("key"))
    .limit(bindparam("most"))
)
_TIMES_OF_TARGET = _TIMES.where(
    kernels.c.epoch == bindparam("epoch"), kernels.c.target == bindparam("target")
)
#: What begins the line of an operation in the text of a spec.
_OPERATION = "\n%"
_OPERATIONS = select(
    specs.c.key,
    (
        (func.length(specs.c.text) - func.length(func.replace(specs.c.text, _OPERATION, "")))
        / len(_OPERATION)
    ).label("operations"),
).where(specs.c.namespace_id == bindparam("ns"), specs.c.key.in_(bindparam("keys", expanding=True)))


class SqlNearby(SqlPart, NearbyStore):
    """``NearbyStore`` on SQL."""

    def list_mappings(self, namespace: Namespace, key: int, limit: int = 100) -> tuple[MappingRecord, ...]:
        checks.number("key or limit", key, limit)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "key": key, "most": limit}
        return tuple(
            MappingRecord(
                row.program_digest,
                row.numerics,
                row.key,
                SignedBytes(row.binding, row.signature),
                row.epoch,
                row.created_at,
            )
            for row in self._db.fetch(_MAPPINGS, values)
        )

    def list_spec_sizes(self, namespace: Namespace, text_size: int, limit: int) -> tuple[SpecSize, ...]:
        checks.number("size or limit", text_size, limit)
        values = {"ns": namespace.id, "size": text_size, "most": limit, "last": max(limit - 1, 0)}
        rows = [row for each in (_LARGER, _AS_FAR, _SMALLER) for row in self._db.fetch(each, values)]
        sizes = [SpecSize(row.key, row.text_size) for row in rows]
        sizes.sort(key=lambda spec: (abs(spec.text_size - text_size), -spec.key))
        return tuple(sizes[:limit])

    def list_near_kernels(
        self, namespace: Namespace, record: KernelRecord, limit: int
    ) -> tuple[NearKernel, ...]:
        """Return kernels of the key of ``record`` in any epoch, nearest first.

        The distance is the sum of the weights of the ingredients that differ.
        """
        checks.wanted(record, limit)
        ingredients = {name: getattr(record, name) for name in WEIGHTS if name != "epoch"}
        here = {"ns": namespace.id, "epoch": namespace.epoch, "key": record.key, "most": limit}
        rows = self._db.fetch(_NEAR_KERNELS, {**ingredients, **here})
        by_kernel = self._ingredients([row.id for row in rows])
        return tuple(
            NearKernel(
                id=row.id,
                kernel=KernelRecord(
                    row.kernel_digest,
                    row.key,
                    row.arg_spec,
                    row.guard,
                    row.target,
                    row.options,
                    row.toolchain,
                ),
                ingredients=by_kernel.get(row.id, ()),
                epoch=row.epoch,
                created_at=row.created_at,
                distance=row.distance,
            )
            for row in rows
        )

    def list_compile_times(
        self, namespace: Namespace, key: int, target: str | None, limit: int
    ) -> tuple[CompileTime, ...]:
        checks.number("key or limit", key, limit)
        checks.text("target", target or "")
        values: dict[str, object] = {"ns": namespace.id, "key": key, "most": limit}
        statement = _TIMES
        if target is not None:
            statement = _TIMES_OF_TARGET
            values |= {"epoch": namespace.epoch, "target": target}
        return tuple(
            CompileTime(row.target, row.options, row.toolchain, row.compile_us)
            for row in self._db.fetch(statement, values)
        )

    def count_operations(self, namespace: Namespace, keys: Sequence[int]) -> Mapping[int, int]:
        checks.number("key", *keys)
        counts: dict[int, int] = {}
        for batch in batches(keys):
            for row in self._db.fetch(_OPERATIONS, {"ns": namespace.id, "keys": batch}):
                counts[row.key] = int(row.operations)
        return counts

    def _ingredients(self, ids: Sequence[int]) -> dict[int, Ingredients]:
        ingredients: dict[int, Ingredients] = {}
        for batch in batches(ids):
            for row in self._db.fetch(_INGREDIENTS_OF, {"kernels": batch}):
                ingredients[row.kernel_id] = (*ingredients.get(row.kernel_id, ()), (row.name, row.value))
        return ingredients
