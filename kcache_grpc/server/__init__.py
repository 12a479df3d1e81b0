"""The gRPC server: servicers that translate, what surrounds each call, listening, draining.

``await start_server(config)`` for a server inside a running event loop, ``serve(config)`` for a process.
"""

from kcache_grpc.server.config import ServerConfig
from kcache_grpc.server.process import serve
from kcache_grpc.server.startup import ServerHandle, start_server

__all__ = ["ServerConfig", "ServerHandle", "serve", "start_server"]
