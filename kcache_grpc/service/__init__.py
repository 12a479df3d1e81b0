"""The use cases: look up, store, upload, compile once, read. No gRPC in here."""

from kcache_grpc.service.service import KernelService
from kcache_grpc.service.values import Caller
from kcache_grpc.service.wiring import ServiceConfig

__all__ = ["Caller", "KernelService", "ServiceConfig"]
