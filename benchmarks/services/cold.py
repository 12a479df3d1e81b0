"""``kcache serve`` that remembers nothing between requests: what a hit costs when the store answers it.

``python -m benchmarks.services.cold`` takes its settings from KCACHE_* variables.
"""

from __future__ import annotations

import os

from kcache_grpc.server import ServerConfig, serve
from kcache_grpc.service.graphs import graphs
from kcache_grpc.service.lookup import batch_lookup, kernels, variants


def main() -> None:
    """Nothing fits into memories of no bytes. Namespaces are remembered for their second, as ever."""
    graphs._MEMORY_BYTES = batch_lookup._MEMORY_BYTES = variants._MEMORY_BYTES = 0  # pyright: ignore[reportPrivateUsage]
    kernels._MANIFEST_BYTES = kernels._BLOB_BYTES = 0  # pyright: ignore[reportPrivateUsage]
    serve(ServerConfig.from_env(os.environ))


if __name__ == "__main__":
    main()
