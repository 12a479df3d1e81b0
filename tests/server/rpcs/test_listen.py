"""Where a server listens, who may call, and what its settings say."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from kcache_grpc.errors import ArgumentError, PermissionDenied, Unavailable
from kcache_grpc.model.signing import Signer
from kcache_grpc.server import ServerConfig, start_server
from kcache_grpc.server.request_log import Request, RequestLog
from kcache_grpc.service import Caller
from kcache_grpc.storage import open_store
from kcache_grpc.storage.errors import StorageError
from tests.certificates import certificate
from tests.fresh import fresh_store
from tests.server.harness import idle_jobs
from tests.server.harness.programs import header
from tests.server.harness.running import Running, process, running
from tests.server.harness.running import config_in as compiling_config_in


def config_in(folder: Path, **changes: Any) -> ServerConfig:
    """Nothing is compiled here."""
    return compiling_config_in(folder, worker=idle_jobs.settings(), **changes)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(config_in(tmp_path_factory.mktemp("server"))) as server:
        yield server


def start(config: ServerConfig) -> None:
    async def body() -> None:
        handle = await start_server(config)
        await handle.stop(0)

    asyncio.run(body())


def test_a_taken_port_is_a_clear_error(
    server: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unavailable, match=f"cannot listen on {server.address}: Address already in use"):
        start(config_in(tmp_path, listen=(server.address,)))
    assert "add_port" not in capfd.readouterr().err


def test_no_metrics_are_served_unless_asked_for(server: Running) -> None:
    assert not [address for address in server.addresses if address.startswith("http")]


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1:0: Cannot assign requested address"):
        start(config_in(tmp_path, listen=("192.0.2.1:0",), insecure=True))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"])
def test_other_addresses_need_tls_and_a_token(tmp_path: Path, address: str) -> None:
    for change in ({}, {"token": "t"}):
        with pytest.raises(PermissionDenied, match="--insecure"):
            start(config_in(tmp_path, listen=(address,), **change))


@pytest.mark.parametrize("address", ["", "7420", "host", "host:port", "127.0.0.1:99999"])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(ArgumentError, match="host:port"):
        start(config_in(tmp_path, listen=(address,)))


def test_insecure_is_taken_at_its_word(tmp_path: Path) -> None:
    with running(config_in(tmp_path, listen=("0.0.0.0:0",), insecure=True)) as server:
        port = server.address.rpartition(":")[2]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            assert stub.GetCapabilities(pb.GetCapabilitiesRequest()).server_version


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate and of its key."""
    for name, content in zip(("key.pem", "cert.pem"), certificate(), strict=True):
        (folder / name).write_bytes(content)
    return folder / "cert.pem", folder / "key.pem"


def test_tls_and_a_token_open_any_address(tmp_path: Path) -> None:
    cert, key = certificate_in(tmp_path)
    config = config_in(tmp_path, listen=("0.0.0.0:0",), tls_cert=cert, tls_key=key, token="secret")
    with running(config) as server:
        port = server.address.rpartition(":")[2]
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.CountSpecs(pb.CountSpecsRequest())
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            metadata = (("authorization", "Bearer secret"),)
            assert stub.CountSpecs(pb.CountSpecsRequest(), metadata=metadata).count == 0
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_the_socket_is_private_and_not_stolen(tmp_path: Path) -> None:
    path = tmp_path / "run" / "kcache.sock"
    with running(config_in(tmp_path, listen=(), socket=path)) as server:
        assert server.addresses == (f"unix:{path}",)
        assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("unix"))).count == 0
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Unavailable, match="another server"):
            start(config_in(tmp_path, listen=(), socket=path))
        assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("unix"))).count == 0
    assert not path.exists()


@pytest.mark.issue(number=19, point=21)
def test_a_server_starts_without_the_default_socket_of_another(tmp_path: Path) -> None:
    """As two ``kcache serve --listen X --db Y`` whose state directory is the same; the second says so."""
    state = {"KCACHE_STATE_DIR": str(tmp_path), "KCACHE_DB": f"sqlite:///{tmp_path}/kcache.sqlite"}
    fresh_store(tmp_path / "kcache.sqlite")
    idle: dict[str, Any] = {"worker": idle_jobs.settings(), "listen": ("127.0.0.1:0",)}
    first, second = (ServerConfig.from_env(state, **idle) for _ in range(2))
    records: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: records.append(record.getMessage())
    logger = logging.getLogger("kcache.server")
    logger.addHandler(handler)
    try:
        with running(first) as first_server:
            assert first_server.addresses[1] == f"unix:{tmp_path}/run/kcache.sock"
            with running(second) as two:
                assert [address.split(":")[0] for address in two.addresses] == ["127.0.0.1"]
                assert two.stub.CountSpecs(pb.CountSpecsRequest()).count == 0
                (said,) = records
                assert f"another server holds the Unix socket {tmp_path}/run/kcache.sock" in said
                assert "Admin" in said
            # The first one keeps its socket, and one that is asked for by name stays an error.
            with pytest.raises(Unavailable, match="another server"):
                start(ServerConfig.from_env(state, socket=first.socket, **idle))
            with pytest.raises(Unavailable, match="another server"):
                start(ServerConfig.from_env({**state, "KCACHE_SOCKET": str(first.socket)}, **idle))
            with pytest.raises(Unavailable, match="another server"):
                start(replace(second, listen=()))
    finally:
        logger.removeHandler(handler)


def test_a_socket_left_by_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run" / "kcache.sock"
    with process(tmp_path, TEST_IDLE_JOBS="1", KCACHE_SOCKET=str(path)):
        pass
    assert path.exists()
    start(config_in(tmp_path, listen=(), socket=path))


def test_a_directory_that_others_can_enter_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(PermissionDenied, match="chmod 700"):
        start(config_in(tmp_path, listen=(), socket=tmp_path / "open" / "s"))


def test_a_socket_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="107"):
        start(config_in(tmp_path, listen=(), socket=tmp_path / ("x" * 200)))


def test_the_signing_key_is_made_once_and_kept(tmp_path: Path) -> None:
    ids: list[str] = []
    for _ in range(2):
        with running(config_in(tmp_path)) as server:
            ids.append(server.stub.GetCapabilities(pb.GetCapabilitiesRequest()).server_id)
            assert server.config.signing_key.stat().st_mode & 0o777 == 0o600
    assert ids[0] == ids[1]


def test_another_key_is_rejected_or_disowns_what_was_signed(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    start(config)
    config.signing_key.unlink()
    with pytest.raises(PermissionDenied, match="--disown"):
        start(config)
    start(replace(config, disown=True))
    start(config)
    with open_store(config.db) as store:
        store.claim_signer(Signer.from_file(config.signing_key).key_id)


def test_a_ready_file_says_where_it_listens(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    with process(tmp_path, TEST_IDLE_JOBS="1", KCACHE_READY_FILE=str(ready)) as (child, address):
        said = json.loads(ready.read_text())
        assert said["addresses"][0] == address
        assert said["pid"] == child.pid
        child.terminate()
        assert child.wait(120) == 0
    assert not ready.exists()


def test_requests_are_logged_one_line_each(tmp_path: Path) -> None:
    with process(tmp_path, TEST_IDLE_JOBS="1", KCACHE_LOG_FORMAT="json") as (child, address):
        with grpc.insecure_channel(address) as channel:
            stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            stub.CountSpecs(pb.CountSpecsRequest(header=header("logged", "id-1")))
            with pytest.raises(grpc.RpcError):
                list(stub.GetSpec(pb.GetSpecRequest(header=header("logged", "id-2"), key=1)))
        child.terminate()
        assert child.wait(120) == 0
    lines = [json.loads(line) for line in (tmp_path / "server.log").read_text().splitlines()]
    requests = {line["request_id"]: line for line in lines if line.get("event") == "request"}
    assert (requests["id-1"]["rpc"], requests["id-1"]["outcome"]) == ("CountSpecs", "OK")
    assert (requests["id-2"]["rpc"], requests["id-2"]["outcome"]) == ("GetSpec", "NOT_FOUND")
    assert {line["namespace"] for line in requests.values()} == {"logged"}
    assert all(line["ms"] >= 0 and line["client"] == "test/1" for line in requests.values())


def test_a_server_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "not-a-database").write_text("hello" * 1000)
    with pytest.raises(StorageError):
        start(config_in(tmp_path, db=f"sqlite:///{tmp_path}/not-a-database", socket=tmp_path / "run" / "s"))
    assert not (tmp_path / "run" / "s").exists()


def test_settings_come_from_the_environment_and_flags_win(tmp_path: Path) -> None:
    environ = {
        "KCACHE_DB": f"sqlite:///{tmp_path}/k.sqlite",
        "KCACHE_LISTEN": "127.0.0.1:1, 127.0.0.1:2",
        "KCACHE_WORKERS": "3",
        "KCACHE_WORKER_MEMORY": "1000000000",
        "KCACHE_INSECURE": "no",
        "KCACHE_MAX_QUERIES": "7",
        "KCACHE_COMPILE_TIMEOUT": "1.5",
    }
    config = ServerConfig.from_env(environ, workers=5, token=None)
    assert config.listen == ("127.0.0.1:1", "127.0.0.1:2")
    assert (config.workers, config.compilers, config.insecure) == (5, 5, False)
    assert config.worker.memory_bytes == 1_000_000_000
    assert (config.limits.queries, config.limits.compile_seconds) == (7, 1.5)
    assert config.state_dir == tmp_path / "kcache-state"
    assert config.signing_key.parent == config.state_dir
    assert "secret" not in repr(ServerConfig.from_env(environ, token="secret"))


@pytest.mark.parametrize(
    ("variable", "text"),
    [("KCACHE_WORKERS", "many"), ("KCACHE_INSECURE", "perhaps"), ("KCACHE_MAX_QUERIES", "x")],
)
def test_an_unreadable_setting_is_named(variable: str, text: str) -> None:
    with pytest.raises(ArgumentError, match=variable):
        ServerConfig.from_env({"KCACHE_DB": "memory:", variable: text})


def test_defaults_use_loopback_and_the_state_directory(tmp_path: Path) -> None:
    config = ServerConfig.from_env({"XDG_STATE_HOME": str(tmp_path)})
    assert config.listen == ("127.0.0.1:7420",)
    assert config.db == f"sqlite:///{tmp_path}/kcache/kcache.sqlite"
    assert config.socket == tmp_path / "kcache" / "run" / "kcache.sock"


def test_no_caller_writes_lines_or_fields_of_its_own() -> None:
    caller = Caller(
        namespace="n" * 3_000_000,
        request_id='x" outcome=OK\nforged line',
        client="a b",
        peer="ipv4:1.2.3.4:5",
    )
    request = Request(0.0, "/kcache.v1.KernelCache/CountSpecs", "ARGUMENT", 1.5, caller)
    for format in ("text", "json"):
        (line,) = RequestLog(format)._line(request).splitlines()
        assert len(line) < 800
        assert "outcome=OK" not in line.replace('\\" outcome=OK', "")
        assert "ipv4:1.2.3.4:5" in line


@pytest.mark.parametrize("caller", [None, Caller(), Caller("a", "b c", "d/1.0", 'e"', "f", "g")])
def test_a_text_line_has_the_fields_of_a_request_that_are_not_empty(caller: Caller | None) -> None:
    request = Request(1e9, "/kcache.v1.BlobCache/GetBlob", "OK", 0.1234, caller)
    words = {
        name: value if re.fullmatch(r"[\w.:+/-]*", str(value)) else json.dumps(value)
        for name, value in request.fields().items()
        if value != ""
    }
    assert RequestLog("text")._line(request) == " ".join(f"{name}={word}" for name, word in words.items())
    assert json.loads(RequestLog("json")._line(request)) == {"event": "request", **request.fields()}
