"""Settings: what was said, else the environment, else the defaults; addresses and what is safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcache_grpc.client.address import parse_endpoint
from kcache_grpc.client.config import Tls, from_environment
from kcache_grpc.errors import ArgumentError, NotFound, PermissionDenied

EVERYTHING = {
    "KCACHE_ADDR": "localhost:1",
    "KCACHE_NAMESPACE": "team",
    "KCACHE_TOKEN": "secret",
    "KCACHE_CACHE_DIR": "/c",
    "KCACHE_SERVER_ID": "a" * 64,
    "KCACHE_TIMEOUT": "2.5",
    "KCACHE_TLS": "/ca.pem",
    "KCACHE_ACTOR": "ada",
    "KCACHE_JOB": "train-7",
    "KCACHE_PRELOAD": "/a.kcb::/models",
    "KCACHE_TRUST": f"{'b' * 64}, {'c' * 64},",
}


def test_environment_is_read() -> None:
    config = from_environment(environment=EVERYTHING)
    assert (config.address, config.namespace, config.token) == ("localhost:1", "team", "secret")
    assert (config.cache_dir, config.server_id, config.timeout) == (Path("/c"), "a" * 64, 2.5)
    assert config.tls == "/ca.pem"
    assert (config.actor, config.job) == ("ada", "train-7")
    assert (config.preload, config.trust) == (("/a.kcb", "/models"), ("b" * 64, "c" * 64))
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("argument", "variable", "tls"),
    [(None, "system", True), (None, "", None), (False, "system", False), (True, "/ca.pem", True),
     (b"PEM", "system", b"PEM"), ("/mine.pem", "/ca.pem", "/mine.pem")],
)  # fmt: skip
def test_tls_is_said_or_in_the_environment(argument: Tls, variable: str, tls: Tls) -> None:
    assert from_environment(tls=argument, environment={"KCACHE_TLS": variable}).tls == tls


def test_arguments_win() -> None:
    config = from_environment(
        "unix:/s", namespace="n", token="t", cache_dir="/d", timeout=1, environment=EVERYTHING
    )
    assert (config.address, config.namespace, config.token) == ("unix:/s", "n", "t")
    assert (config.cache_dir, config.timeout) == (Path("/d"), 1)
    config = from_environment(actor="", job="other", environment=EVERYTHING)
    assert (config.actor, config.job) == ("", "other")


def test_who_asks_is_the_user_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    assert from_environment(environment={}).actor == "grace"
    assert from_environment(environment={}).job == ""
    monkeypatch.setenv("LOGNAME", "x" * 200)
    assert from_environment(environment={}).actor == ""


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    config = from_environment(environment={"KCACHE_ADDR": "", "KCACHE_NAMESPACE": ""})
    assert (config.address, config.namespace, config.timeout) == (None, "default", 600)
    assert config.cache_dir == Path("/x/kcache")


@pytest.mark.parametrize(
    "bad",
    [{"namespace": "Team"}, {"namespace": "-a"}, {"namespace": "a" * 129}, {"timeout": 0}, {"timeout": -1},
     {"timeout": float("inf")}, {"timeout": float("nan")}, {"server_id": "abc"},
     {"actor": "a\0b"}, {"job": "ä" * 65}],
)  # fmt: skip
def test_impossible_values(bad: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        from_environment(environment={}, **bad)  # type: ignore[arg-type]


def test_bad_timeout_variable() -> None:
    with pytest.raises(ArgumentError, match="KCACHE_TIMEOUT is 'soon'"):
        from_environment(environment={"KCACHE_TIMEOUT": "soon"})


@pytest.mark.parametrize(
    ("address", "target", "local"),
    [
        ("127.0.0.1:7420", "127.0.0.1:7420", True),
        ("localhost:1", "localhost:1", True),
        ("[::1]:7420", "[::1]:7420", True),
        ("127.8.9.1:1", "127.8.9.1:1", True),
        ("cache.example:7420", "cache.example:7420", False),
        ("10.0.0.1:7420", "10.0.0.1:7420", False),
        ("0.0.0.0:7420", "0.0.0.0:7420", False),
        ("localhost.example:1", "localhost.example:1", False),
        ("unix:/run/kcache.sock", "unix:/run/kcache.sock", True),
        ("unix:///run/kcache.sock", "unix:/run/kcache.sock", True),
    ],
)
def test_addresses(address: str, target: str, local: bool) -> None:
    endpoint = parse_endpoint(address)
    assert (endpoint.target, endpoint.local) == (target, local)


def test_several_addresses_are_one_target_of_servers_that_take_turns() -> None:
    endpoint = parse_endpoint("127.0.0.1:1, 127.0.0.2:2", token="t")
    assert (endpoint.target, endpoint.local) == ("ipv4:127.0.0.1:1,127.0.0.2:2", True)
    assert not parse_endpoint("127.0.0.1:1,10.0.0.1:2").local
    with pytest.raises(PermissionDenied, match="token"):
        parse_endpoint("127.0.0.1:1,10.0.0.1:2", token="t")
    with pytest.raises(ArgumentError, match="balancer"):
        parse_endpoint("10.0.0.1:1,10.0.0.2:1", tls=b"PEM")
    for bad in ("127.0.0.1:1,host:2", "127.0.0.1:1,", "127.0.0.1:1,unix:/s", "127.0.0.1,127.0.0.2"):
        with pytest.raises(ArgumentError, match="address"):
            parse_endpoint(bad)


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:", ":1", "host:0", "host:65536", "host:a", "http://host:1", "::1:7420", "unix:rel",
     "dns:///host:1", "host:1/path", "a b:1"],
)  # fmt: skip
def test_other_addresses_are_rejected(address: str) -> None:
    with pytest.raises(ArgumentError, match="address"):
        parse_endpoint(address)


def test_code_over_plaintext_from_another_host_is_rejected() -> None:
    with pytest.raises(PermissionDenied, match="tls="):
        parse_endpoint("cache.example:7420").require_safe_code()
    parse_endpoint("cache.example:7420", tls=True).require_safe_code()
    parse_endpoint("127.0.0.1:7420").require_safe_code()


def test_a_token_stays_out_of_plaintext() -> None:
    with pytest.raises(PermissionDenied, match="token"):
        parse_endpoint("cache.example:7420", token="t")
    assert parse_endpoint("cache.example:7420", token="t", tls=b"PEM").roots == b"PEM"
    assert parse_endpoint("127.0.0.1:1", token="t").token == "t"


def test_certificates_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"PEM")
    assert parse_endpoint("h:1", tls=tmp_path / "ca.pem").roots == b"PEM"
    assert parse_endpoint("h:1", tls=str(tmp_path / "ca.pem")).roots == b"PEM"
    assert parse_endpoint("h:1", tls=False).roots is None
    with pytest.raises(NotFound, match="certificates"):
        parse_endpoint("h:1", tls=tmp_path / "missing.pem")
