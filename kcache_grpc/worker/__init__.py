"""Worker processes: the only place where programs are parsed and compiled.

``frames`` and ``stages`` are the protocol, ``jobs`` and ``__main__`` the child, ``fork_server``, ``process``
and ``pool`` the parent.
"""

from kcache_grpc.worker.pool import Needed, WorkerPool
from kcache_grpc.worker.process import WorkerSettings

__all__ = ["Needed", "WorkerPool", "WorkerSettings"]
