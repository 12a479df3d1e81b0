"""Views of revision 0004 over the audit log: none reads it from end to end (docs/operate/audit.md).

Digests are grouped by as they are shown, in hex: so a condition on one finds the index of that expression.
"""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from kcache_migrations.summaries import DAY
from kcache_migrations.views import hexadecimal, iso_time


def audit_questions(dialect: str) -> dict[str, str]:
    """Name and query of each."""

    def hexa(column: str, name: str = "") -> str:
        return f"{hexadecimal(dialect, column)} AS {name or column.split('.')[-1]}"

    def time(expression: str, name: str) -> str:
        return f"{iso_time(dialect, expression)} AS {name}"

    def total(expression: str, name: str) -> str:
        return f"CAST(COALESCE(SUM({expression}), 0) AS BIGINT) AS {name}"

    compiled = "CASE WHEN t.kind = 'publish' THEN 1 ELSE 0 END"
    served = "CASE WHEN t.kind = 'serve' THEN t.request_count ELSE 0 END"
    of_event, of_kernel = (hexadecimal(dialect, f"{table}.kernel_digest") for table in "tk")
    program = f"NULLIF({hexadecimal(dialect, 'program_digest')}, '')"
    return {
        "v_kernel_users": f"""
            SELECT n.name AS namespace, {of_event} AS kernel_digest, t.key, t.target, t.actor, t.job, t.peer,
                   {total(served, "served")}, {total(compiled, "compiled")},
                   {total("t.byte_count", "bytes")}, {total("t.saved_us", "saved_us")},
                   {time("MIN(t.at)", "first_at")}, {time("MAX(t.at)", "last_at")}
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, {of_event}, t.key, t.target, t.actor, t.job, t.peer""",
        "v_toolchain_artifacts": f"""
            SELECT n.name AS namespace, {hexa("k.toolchain")}, k.key, {of_kernel} AS kernel_digest, k.target,
                   l.kind, {hexa("a.digest", "artifact_digest")}, a.size,
                   {time("k.created_at", "created_at")}, t.actor, t.job,
                   CAST(SUM(t.request_count) AS BIGINT) AS requests, {time("MAX(t.at)", "last_at")}
            FROM kernels k
            JOIN namespaces n ON n.id = k.namespace_id
            JOIN kernel_artifacts l ON l.kernel_id = k.id
            JOIN artifacts a ON a.id = l.artifact_id
            LEFT JOIN audit_events t ON t.namespace_id = k.namespace_id AND {of_event} = {of_kernel}
                AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, {hexadecimal(dialect, "k.toolchain")}, k.id, k.key, {of_kernel}, k.target,
                     k.created_at, l.kind, a.digest, a.size, t.actor, t.job""",
        "v_misses": f"""
            SELECT namespace, reason, {program} AS program_digest, key, target, misses, last_actor, last_job,
                   {time("first_at", "first_at")}, {time("last_at", "last_at")}
            FROM audit_misses""",
        "v_time_saved": f"""
            SELECT namespace, substr({iso_time(dialect, f"(audit_days.day * {DAY})")}, 1, 10) AS day,
                   {total("served", "served")}, {total("saved_us", "saved_us")},
                   {total("compiled", "compiled")}, {total("compile_us", "compile_us")}
            FROM audit_days
            GROUP BY namespace, audit_days.day""",
    }
