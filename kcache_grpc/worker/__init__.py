"""Worker processes: the only place where programs are parsed and compiled.

Parent: ``pool``, ``process`` and ``fork_server``. Child: ``__main__``, ``isolation``, ``containment`` and
``child``, whose ``jobs`` parse and compile. Protocol: ``frames`` over a socket, the values in them
(``codec``), the first message (``child/support.py``), the names of stages (``stages``), errors (``failure``).
"""

from kcache_grpc.worker.pool import Needed, WorkerPool
from kcache_grpc.worker.process import WorkerSettings

__all__ = ["Needed", "WorkerPool", "WorkerSettings"]
