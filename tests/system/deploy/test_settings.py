"""The commands and the environment of the composition and of the manifests, as processes on this machine."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import make_url

import kcache_grpc as kcache
from tests.ports import free_port
from tests.postgres import PostgresServer, binaries
from tests.repository.sources import ROOT
from tests.s3 import S3Server
from tests.server.harness.programs import add
from tests.server.rpcs.test_listen import certificate_in
from tests.system.deploy.test_files import DEPLOY, compose, documents


def command(environment: Mapping[str, str], words: Sequence[str]) -> list[str]:
    """``kcache`` with these arguments; nothing of this process's settings."""
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ]
    assignments = [f"{name}={value}" for name, value in environment.items()]
    return ["env", "-i", *kept, *assignments, sys.executable, "-m", "kcache_grpc", *words]


@contextmanager
def serving(environment: Mapping[str, str], probe: Sequence[str], folder: Path) -> Iterator[None]:
    """``kcache serve`` until its own health check says that it serves; it ends by SIGTERM, and well."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command(environment, ["serve"]), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 240
        while subprocess.run(command(environment, probe), check=False, capture_output=True).returncode != 0:
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
        yield
        server.terminate()
        assert server.wait(200) == 0
    finally:
        server.kill()
        server.wait()


def moved(environment: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    """The environment with what names other hosts, folders and fixed ports replaced."""
    settings = dict(environment)
    for name, value in settings.items():
        for old, new in places.items():
            value = value.replace(old, new)
        settings[name] = value
    return settings


@pytest.fixture
def folder() -> Iterator[Path]:
    """One whose Unix sockets have short names."""
    with tempfile.TemporaryDirectory(prefix="kc-deploy-") as directory:
        yield Path(directory)


def make_bucket(service: Mapping[str, Any], endpoint: str) -> None:
    """What the service ``bucket`` runs, by the shell and the curl of this machine."""
    (script,) = service["command"]
    script = script.replace("$$", "$").replace("http://objects:8333", endpoint)
    subprocess.run(
        [*service["entrypoint"], script], check=True, env={**os.environ, "OBJECTS_PASSWORD": "test"}
    )


def make_role(service: Mapping[str, Any], url: str) -> None:
    """What the service ``roles`` runs, by the shell of this machine and the ``psql`` of the tests."""
    (script,) = service["command"]
    server = make_url(url)
    environment = {
        "PATH": f"{binaries()}:{os.environ['PATH']}",
        "PGHOST": str(server.query["host"]),
        "PGUSER": str(server.username),
        "PGDATABASE": str(server.database),
        "SERVER_PASSWORD": "it's secret",
    }
    subprocess.run([*service["entrypoint"], script.replace("$$", "$")], check=True, env=environment)


@pytest.mark.issue(number=19, point=7)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_composition(folder: Path, postgres_server: PostgresServer, s3_server: S3Server) -> None:
    services, url = compose()["services"], postgres_server.create()
    for _ in range(2):  # it runs whenever the composition starts
        make_bucket(services["bucket"], s3_server.endpoint)
    port, metrics = free_port(), free_port()
    servers_url = url.replace("kcache@", "kcache_server@")
    places = {
        "postgresql://kcache:${POSTGRES_PASSWORD:?set it in .env}@postgres/kcache": url,
        "postgresql://kcache_server:${SERVER_PASSWORD:?set it in .env}@postgres/kcache": servers_url,
        "${OBJECTS_PASSWORD:?set it in .env}": "test",
        "http://objects:8333": s3_server.endpoint,
        "0.0.0.0:7420": f"0.0.0.0:{port}",
        "0.0.0.0:9420": f"0.0.0.0:{metrics}",
        "/var/lib/kcache": str(folder / "identity"),
        "${KCACHE_WORKERS:-2}": "2",
        "/tmp/kcache": str(folder / "state"),
    }
    (folder / "identity").mkdir()
    environment = moved(services["kcache-1"]["environment"], places) | {"KCACHE_OBJECTS_INLINE_BYTES": "0"}
    administrators = moved(services["migrate"]["environment"], places)
    assert administrators == moved(services["kcache-1"]["environment"], places) | {
        "KCACHE_DB": url,
        "KCACHE_SERVER_ROLE": "kcache_server",
    }
    for _ in range(2):  # both run whenever the composition starts
        make_role(services["roles"], url)
        migrate = command(administrators, services["migrate"]["command"].split())
        subprocess.run(migrate, check=True, capture_output=True)
    probe = re.search(r'HEALTHCHECK .* CMD \["kcache", (.*)\]', (ROOT / "Dockerfile").read_text())
    assert probe is not None
    words = [*shlex.split(probe[1].replace(",", " ")), "--addr", f"127.0.0.1:{port}"]
    with (
        serving(environment, words, folder),
        kcache.Client(f"127.0.0.1:{port}", cache_dir=folder / "cache", strict=True) as client,
    ):
        assert client.compile(add(5).decode()).origin == "compiled"
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=120) as answer:
            assert b"kcache_compiles_total 1.0" in answer.read()
    rows = postgres_server.execute(
        "SELECT count(*) FROM artifact_chunks WHERE location IS NULL", url.split("?")[0].rpartition("/")[2]
    )
    assert rows == [(0,)]  # all bytes are in the object store
    with psycopg.connect(servers_url) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute("DELETE FROM kernels")
    postgres_server.drop(url)
    postgres_server.execute("DROP ROLE kcache_server")


@pytest.mark.long
def test_the_manifests(folder: Path, postgres_server: PostgresServer, s3_server: S3Server) -> None:
    (settings,) = documents(DEPLOY / "kubernetes" / "settings.yaml")
    deployment, _ = documents(DEPLOY / "kubernetes" / "replicas.yaml")
    (job,) = documents(DEPLOY / "kubernetes" / "migrate.yaml")
    port, metrics, url, token = free_port(), free_port(), postgres_server.create(), secrets.token_hex(16)
    places = {
        "s3://kcache/": f"s3://{s3_server.bucket()}/",
        "0.0.0.0:7420": f"0.0.0.0:{port}",
        "0.0.0.0:9420": f"0.0.0.0:{metrics}",
        "/run/kcache/identity": str(folder / "identity"),
        "/tmp/kcache": str(folder / "state"),
    }
    secret = {
        "KCACHE_DB": url,
        "KCACHE_TOKEN": token,
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    environment = moved(settings["data"], places) | secret
    # The job has no identity mounted.
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    subprocess.run(command(environment, words), check=True, capture_output=True)
    cert, key = certificate_in(folder)
    (folder / "secret").mkdir()
    (folder / "secret" / "signing.key").write_bytes(secrets.token_bytes(32))
    shutil.copy(cert, folder / "secret" / "tls.crt")
    shutil.copy(key, folder / "secret" / "tls.key")
    pod = deployment["spec"]["template"]["spec"]
    (first,), (container,) = pod["initContainers"], pod["containers"]
    (script,) = first["args"]
    script = script.replace("/run/secrets/kcache", f"{folder}/secret").replace(
        "/run/kcache/identity", f"{folder}/identity"
    )
    (folder / "identity").mkdir()
    subprocess.run([*first["command"], script], check=True)
    probes = [
        container[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    assert probes[0] == probes[1] == probes[2]
    _, *words = [word.replace("/tmp/kcache", f"{folder}/state") for word in probes[0]]
    with (
        serving(environment, words, folder),
        kcache.Client(
            f"localhost:{port}", tls=str(cert), token=token, cache_dir=folder / "cache", strict=True
        ) as client,
    ):
        assert client.compile(add(6).decode()).origin == "compiled"
    postgres_server.drop(url)


def test_the_image_has_what_the_composition_asks_for() -> None:
    built = re.search(r"build_image\.sh /opt/kcache (\S+)", (ROOT / "Dockerfile").read_text())
    assert built is not None
    environment = compose()["services"]["kcache-1"]["environment"]
    assert environment["KCACHE_DB"].startswith("postgresql:")
    assert environment["KCACHE_OBJECTS"].startswith("s3:")
    assert set(built[1].split(",")) >= {"server", "postgres", "objects"}
