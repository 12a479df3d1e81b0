"""Addresses on which a server listens; rejects insecure ones unless options allow them."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import logging
import os
import socket
from pathlib import Path
from typing import BinaryIO

import grpc
import grpc.aio

from kcache_grpc.errors import ArgumentError, PermissionDenied, Unavailable
from kcache_grpc.server.config import MAX_SOCKET_PATH, ServerConfig, fits_socket

logger = logging.getLogger("kcache.server")


def bind(server: grpc.aio.Server, config: ServerConfig) -> list[str]:
    """Opens all TCP addresses of ``config``; returns them with their real ports.

    Raises ``PermissionDenied`` for an address that would not be safe, ``Unavailable`` for a taken one.
    """
    credentials = _credentials(config)
    bound: list[str] = []
    for address in config.listen:
        check_safe(address, config)
        _require_free(address)
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}") from error
        bound.append(f"{address.rpartition(':')[0]}:{port}")
    return bound


def _require_free(address: str) -> None:
    """Raises ``Unavailable`` with the system's reason: gRPC tells it to the terminal, and not to us."""
    host, _, port = address.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror}") from error
    reasons = [_bind_error(family, address) for family, _, _, _, address in addresses]
    if all(reasons):
        raise Unavailable(f"cannot listen on {address}: {reasons[0]}")


def _bind_error(family: int, address: tuple[object, ...]) -> str:
    """Why a server cannot bind this address; empty if it can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_safe(address: str, config: ServerConfig) -> None:
    """Raises ``PermissionDenied`` unless it is loopback, has TLS and a token, or insecurity is asked for."""
    if is_loopback(address) or config.insecure or (config.tls_cert is not None and config.authenticates):
        return
    raise PermissionDenied(
        f"{address} can be reached from other machines: give a TLS certificate and key and a token, "
        "or say --insecure if the network itself is trusted"
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches ``host:port``. Raises ``ArgumentError`` for another form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ArgumentError(f"listen address {address!r} is not host:port")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class SocketTaken(Unavailable):
    """Another server listens on the Unix socket."""


class UnixSocket:
    """A Unix socket in a private directory; a lock file keeps a second server from stealing its name."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not fits_socket(self.path):
            raise ArgumentError(f"socket path {self.path} is longer than {MAX_SOCKET_PATH} bytes")
        _private_directory(self.path.parent)
        self._lock = self._take_lock()

    def bind(self, server: grpc.aio.Server) -> str:
        """Opens it; returns its address."""
        address = f"unix:{self.path}"
        try:
            server.add_insecure_port(address)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}") from error
        self.path.chmod(0o600)
        return address

    def close(self) -> None:
        """Removes it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._lock.close()

    def _take_lock(self) -> BinaryIO:
        lock = self.path.with_name(self.path.name + ".lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise SocketTaken(f"cannot listen on {self.path}: another server does") from None
        return lock


def optional_socket(config: ServerConfig) -> UnixSocket | None:
    """The Unix socket of ``config``; ``None`` where it has none, or where its optional one is taken.

    The latter is logged. Raises ``SocketTaken`` where the socket is not optional or the only address.
    """
    if config.socket is None:
        return None
    try:
        return UnixSocket(config.socket)
    except SocketTaken:
        if not (config.socket_optional and config.listen):
            raise
    logger.warning(
        "another server holds the Unix socket %s: this one starts without it, on %s only%s; "
        "give it its own socket with --socket PATH",
        config.socket,
        ", ".join(config.listen),
        ""
        if config.authenticates
        else " and without the Admin service, which a server without a token has there",
    )
    return None


def _private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionDenied(f"{path} is not a private directory; run: chmod 700 {path}")


def _credentials(config: ServerConfig) -> grpc.ServerCredentials | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    try:
        pair = (config.tls_key.read_bytes(), config.tls_cert.read_bytes())
    except OSError as error:
        raise ArgumentError(f"cannot read the TLS certificate or key: {error}") from error
    return grpc.ssl_server_credentials([pair])
