"""Object stores by URL."""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kcache_grpc.storage import checks
from kcache_grpc.storage.errors import InvalidValue, StoreUnavailable, UnsupportedStore
from kcache_grpc.storage.objects.client import ObjectStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Backend

#: Blobs of at most this many bytes stay in rows: docs/operate/storage.md has the measurements.
INLINE_BYTES = 64 << 10

_SCHEMES = ("file", "s3", "gs", "az")
#: A store that hangs costs a caller about 20 s, one that rejects requests about a second.
_CLIENT: ClientConfig = {
    "connect_timeout": "3s",
    "read_timeout": "8s",
    "timeout": "60s",
    # The address is the operator's, in the library's own variable; what comes is digest-checked.
    "allow_http": True,
    "user_agent": "kcache",
}
_RETRY: RetryConfig = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=50),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}


def open_objects(url: str, inline_bytes: int = INLINE_BYTES) -> ObjectStore:
    """The object store at ``file:///directory``, ``s3://bucket/prefix``, ``gs://...`` or ``az://...``.

    Endpoint, region and credentials come from the environment variables of each cloud
    (docs/operate/storage.md). Talks to nobody yet. Raises ``InvalidValue``, ``UnsupportedStore``, and
    ``StoreUnavailable`` for a directory that cannot be made.
    """
    checks.number("inline bytes", inline_bytes)
    scheme = _scheme(url)
    if find_spec("obstore") is None:
        raise UnsupportedStore(
            "object stores need obstore, which is not installed; run: pip install 'kcache-grpc[objects]'"
        )
    if scheme == "file":
        directory = _directory(url)
        return ObjectStore(f"file://{directory}", _local(directory), inline_bytes, directory)
    return ObjectStore(url.rstrip("/"), _remote(url), inline_bytes)


def _scheme(url: str) -> str:
    try:
        parsed = urlsplit(url)
    except ValueError as error:
        raise InvalidValue("that is not the URL of an object store") from error
    if parsed.scheme not in _SCHEMES:
        raise UnsupportedStore(
            f"no object store is known for {parsed.scheme or 'a URL without a scheme'}: use "
            "file:///directory, s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix"
        )
    if parsed.username or parsed.password or parsed.query or parsed.fragment:
        raise InvalidValue(
            "the URL of an object store has bucket and prefix only; credentials and endpoint are taken from "
            "the environment (docs/operate/storage.md)"
        )
    if parsed.scheme == "file" and (parsed.netloc or not parsed.path.startswith("/")):
        raise InvalidValue(f"{url} has no absolute path; write file:///directory")
    if parsed.scheme != "file" and not parsed.netloc:
        raise InvalidValue(f"{url} names no bucket; write {parsed.scheme}://bucket/prefix")
    return parsed.scheme


def _directory(url: str) -> Path:
    path = unquote(urlsplit(url).path)
    if "\0" in path:
        raise InvalidValue("the directory of the object store has a NUL in its name")
    return Path(path)


def _local(directory: Path) -> Backend:
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return LocalStore(directory.resolve())
    except (OSError, BaseError) as error:
        raise StoreUnavailable(f"the directory {directory} cannot be used for objects: {error}") from error


def _remote(url: str) -> Backend:
    import obstore.store
    from obstore.exceptions import BaseError

    library: Any = obstore.store  # its stubs leave keywords untyped
    try:
        return library.from_url(url, client_options=_CLIENT, retry_config=_RETRY)
    except (BaseError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(f"{url} cannot be opened as an object store: {reason}") from error
