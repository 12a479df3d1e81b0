"""Postgres before its first ANALYZE: the kernels of a key are found by their key all the same."""

from __future__ import annotations

import re

import psycopg
import pytest
from sqlalchemy.dialects import postgresql

from kcache_grpc.storage import open_store
from kcache_grpc.storage.sql.kernels import kernels as statements
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, kernel

#: More of the same toolchain, as a namespace has that grew within a minute.
MANY = """
INSERT INTO kernels SELECT (jsonb_populate_record(kernels, jsonb_build_object(
    'id', id + n, 'key', key + n, 'kernel_digest', '\\x' || encode(sha256(n::text::bytea), 'hex')))).*
FROM kernels, generate_series(1, 2000) n
"""
VALUES = {
    "ns": "1",
    "epoch": "1",
    "key": "77",
    "target": "'x86-64-v3'",
    "options": "'numerics=default'",
    "toolchain": "sha256('toolchain')",
}


@pytest.fixture
def url(postgres_server: PostgresServer):
    address = postgres_server.create_migrated()
    with open_store(address) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0))
        store.publish_kernel(ns, kernel(0))
    yield address
    postgres_server.drop(address)


def test_variants_are_not_searched_by_toolchain(url):
    compiled = str(statements._VARIANTS.compile(dialect=postgresql.dialect(paramstyle="named")))
    sql = re.sub(r"(?<!:):([a-z_]\w*)", lambda name: VALUES.get(name[1], "0"), compiled)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE kernels SET (autovacuum_enabled = off)")
        # Foreign keys are not looked at.
        connection.execute("SET session_replication_role = replica")
        connection.execute(MANY.encode())
        plan = connection.execute(f"EXPLAIN (ANALYZE) {sql}".encode()).fetchall()
    told = "\n".join(line for (line,) in plan)
    removed = [int(count) for count in re.findall(r"Rows Removed by Filter: (\d+)", told)]
    assert sum(removed) < 10, told
