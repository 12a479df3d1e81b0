"""Bytes outside the database: in a bucket or a directory, by URL.

``open_objects`` gives an ``ObjectStore``; ``placing`` puts blobs there before the rows that name them,
``attach`` ties one object store to one database, ``sweep`` deletes what no row names any more.
"""

from __future__ import annotations

from kcache_grpc.storage.objects.client import Lost, ObjectStat, ObjectStore
from kcache_grpc.storage.objects.opening import INLINE_BYTES, open_objects

__all__ = ["INLINE_BYTES", "Lost", "ObjectStat", "ObjectStore", "open_objects"]
