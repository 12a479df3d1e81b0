"""Addresses of servers: parsing, and whether a connection to one is secure enough."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from kcache_grpc.client.config import Tls
from kcache_grpc.errors import ArgumentError, NotFound, PermissionDenied

_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class Endpoint:
    """One server as a client reaches it."""

    #: gRPC's target, also the name under which the server's key is pinned.
    target: str
    #: Whether the bytes stay on this machine.
    local: bool
    #: PEM of the authorities; empty: the system's; ``None``: plaintext.
    roots: bytes | None = None
    token: str | None = field(default=None, repr=False)
    #: The identity that it must have; ``None``: the pinned one.
    server_id: str | None = None

    def require_safe_code(self) -> None:
        """Raises ``PermissionDenied`` where anyone on the way could exchange native code."""
        if self.roots is None and not self.local:
            raise PermissionDenied(
                f"kernels are native code, and {self.target} is another host reached in plaintext; "
                "use tls=..., or a tunnel to 127.0.0.1 or to a Unix socket"
            )


def parse_endpoint(
    address: str, *, tls: Tls = None, token: str | None = None, server_id: str | None = None
) -> Endpoint:
    """Reads ``host:port``, ``unix:/path``, or ``ip:port,ip:port`` for servers of one store that take turns.

    A host name whose lookup gives several addresses is such a list too. Raises ``ArgumentError`` or
    ``PermissionDenied``.
    """
    roots = _roots(tls)
    if "," in address:
        return _several(address, roots, token, server_id)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path.startswith("/"):
            raise ArgumentError(f"address {address!r}: the path of a Unix socket starts with /")
        return Endpoint(f"unix:{path}", True, roots, token, server_id)
    match = _HOST_PORT.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ArgumentError(f"address {address!r}: use 'host:port' or 'unix:/path'")
    endpoint = Endpoint(address, _is_loopback(match["host"]), roots, token, server_id)
    if token is not None and roots is None and not endpoint.local:
        raise PermissionDenied(f"a token is not sent to another host ({address}) in plaintext; use tls=...")
    return endpoint


def _several(address: str, roots: bytes | None, token: str | None, server_id: str | None) -> Endpoint:
    if roots is not None:
        raise ArgumentError(
            f"address {address!r}: with TLS use a host name whose lookup gives all servers, or a balancer"
        )
    each = [parse_endpoint(part.strip(), token=token) for part in address.split(",")]
    try:
        for endpoint in each:
            ipaddress.IPv4Address(endpoint.target.rpartition(":")[0])
    except ValueError as error:
        raise ArgumentError(f"address {address!r}: a list has IPv4 addresses, as in 10.0.0.1:7420") from error
    target = "ipv4:" + ",".join(endpoint.target for endpoint in each)
    return Endpoint(target, all(endpoint.local for endpoint in each), None, token, server_id)


def _is_loopback(host: str) -> bool:
    """Only by the name: what a resolver says could change between the question and the connection."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _roots(tls: Tls) -> bytes | None:
    if tls is None or tls is False:
        return None
    if tls is True:
        return b""
    if isinstance(tls, bytes):
        return tls
    try:
        return Path(os.fspath(tls)).read_bytes()
    except OSError as error:
        raise NotFound(f"the certificates {os.fspath(tls)!r} cannot be read: {error}") from error
