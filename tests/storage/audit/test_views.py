"""The views over the audit log answer the questions of docs/operate/audit.md, on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kcache_grpc.storage.records import AuditEvent
from kcache_grpc.storage.sql.store import SqlStore
from tests.storage.conftest import Opener
from tests.storage.drafts import Time, kernel, program, sha256, spec

DOCS = Path(__file__).parents[3] / "docs" / "operate" / "audit.md"
DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01
TOOLCHAIN = sha256("toolchain")


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def store(
    request: pytest.FixtureRequest, openers: dict[str, Opener], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlStore]:
    """Two kernels: one that ada's job compiled and others use, one that nobody asks for any longer."""
    with openers[request.param](tmp_path_factory.mktemp("views"), Time()) as opened:
        assert isinstance(opened, SqlStore)
        ns = opened.get_or_create_namespace("team")
        opened.put_spec(ns, spec(0))
        common = {"key": 1, "target": "x86-64-v3", "toolchain": TOOLCHAIN, "peer": "ipv4:10.0.0.1:1"}
        first = {**common, "kernel_digest": kernel(1).kernel.kernel_digest, "program_digest": program(1)}
        event = AuditEvent(
            "publish", "ok", actor="ada", job="train-7", duration_us=2_000_000, at=START, **first
        )
        opened.publish_kernel(ns, kernel(1), event=event)
        opened.publish_kernel(ns, kernel(2))
        served = {**first, "saved_us": 2_000_000, "byte_count": 100}
        opened.append_audit(
            ns,
            [
                AuditEvent("serve", "hit", "stored", actor="ada", job="train-7", at=START + 1, **served),
                AuditEvent("serve", "hit", "stored", actor="bob", job="serve-1", at=START + DAY, **served),
                AuditEvent(
                    "serve",
                    "hit",
                    "stored",
                    actor="bob",
                    job="serve-1",
                    request_count=10,
                    at=START + DAY + 5,
                    **{**served, "saved_us": 20_000_000, "byte_count": 1000},
                ),
                *(
                    AuditEvent(
                        "miss",
                        reason,
                        actor=actor,
                        job="train-7",
                        program_digest=program(number),
                        target="x86-64-v3",
                        request_count=count,
                        at=START + at,
                    )
                    for reason, actor, number, count, at in (
                        ("need_program", "ada", 5, 3, 5),
                        ("need_program", "bob", 5, 4, 6),
                        ("need_compile", "ada", 6, 1, 7),
                    )
                ),
            ],
        )
        other = opened.get_or_create_namespace("other")
        opened.append_audit(other, [AuditEvent("serve", job="train-7", kernel_digest=program(9), at=START)])
        yield opened


def ask(store: SqlStore, query: str) -> list[Any]:
    return [tuple(row) for row in store._db.fetch(text(query))]  # pyright: ignore[reportPrivateUsage]


def test_what_did_a_job_run(store: SqlStore) -> None:
    query = "SELECT actor, key, kernel_digest, served, compiled, compile_us, saved_us, first_at, last_at"
    where = "FROM v_job_kernels WHERE namespace = 'team' AND job = 'train-7'"
    assert ask(store, f"{query} {where}") == [
        (
            "ada",
            1,
            kernel(1).kernel.kernel_digest.hex(),
            1,
            1,
            2_000_000,
            2_000_000,
            "2026-01-01T00:00:00.000000Z",
            "2026-01-01T00:00:00.000001Z",
        )
    ]


def test_which_artifacts_came_from_a_toolchain_and_who_still_uses_them(store: SqlStore) -> None:
    query = "SELECT kernel_digest, kind, actor, job, requests FROM v_toolchain_artifacts"
    rows = ask(store, f"{query} WHERE toolchain = '{TOOLCHAIN.hex()}' AND kind = 'so' ORDER BY last_at")
    first, two = (kernel(number).kernel.kernel_digest.hex() for number in (1, 2))
    assert sorted(rows, key=str) == sorted(
        [
            (first, "so", "ada", "train-7", 2),
            (first, "so", "bob", "serve-1", 11),
            (two, "so", None, None, None),
        ],
        key=str,
    )
    unused = ask(store, "SELECT DISTINCT kernel_digest FROM v_toolchain_artifacts WHERE actor IS NULL")
    assert unused == [(two,)]


def test_top_misses_and_their_reasons(store: SqlStore) -> None:
    query = "SELECT reason, program_digest, misses, last_actor, first_at, last_at FROM v_misses"
    at = "2026-01-01T00:00:00.00000{}Z"
    assert ask(store, f"{query} WHERE namespace = 'team' ORDER BY misses DESC") == [
        ("need_program", program(5).hex(), 7, "bob", at.format(5), at.format(6)),
        ("need_compile", program(6).hex(), 1, "ada", at.format(7), at.format(7)),
    ]


def test_time_saved_per_namespace_and_day(store: SqlStore) -> None:
    query = "SELECT day, served, saved_us, compiled, compile_us FROM v_time_saved WHERE namespace = 'team'"
    assert ask(store, f"{query} ORDER BY day") == [
        ("2026-01-01", 1, 2_000_000, 1, 2_000_000),
        ("2026-01-02", 11, 22_000_000, 0, 0),
    ]


def test_who_was_served_a_kernel(store: SqlStore) -> None:
    digest = kernel(1).kernel.kernel_digest.hex()
    query = "SELECT actor, job, served, compiled, bytes FROM v_kernel_users WHERE namespace = 'team'"
    assert ask(store, f"{query} AND kernel_digest = '{digest}' ORDER BY actor") == [
        ("ada", "train-7", 1, 1, 100),
        ("bob", "serve-1", 11, 0, 1100),
    ]


def test_the_queries_of_the_page_run(store: SqlStore) -> None:
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(queries) >= 5
    for query in queries:
        ask(store, query.rstrip().rstrip(";"))
