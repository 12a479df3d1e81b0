"""Views of revision 0003 over the audit log, each for one question (docs/operate/audit.md)."""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from kcache_migrations.views import hexadecimal, iso_time


def audit_views(dialect: str) -> dict[str, str]:
    """Name and query of each."""

    def hexa(column: str, name: str = "") -> str:
        return f"{hexadecimal(dialect, column)} AS {name or column.split('.')[-1]}"

    def time(expression: str, name: str) -> str:
        return f"{iso_time(dialect, expression)} AS {name}"

    def total(expression: str, name: str) -> str:
        return f"CAST(COALESCE(SUM({expression}), 0) AS BIGINT) AS {name}"

    published = "CASE WHEN t.kind = 'publish' THEN t.duration_us ELSE 0 END"
    compiled = "CASE WHEN t.kind = 'publish' THEN 1 ELSE 0 END"
    served = "CASE WHEN t.kind = 'serve' THEN t.request_count ELSE 0 END"
    day = f"substr({iso_time(dialect, 't.at')}, 1, 10)"
    span = f"{time('MIN(t.at)', 'first_at')}, {time('MAX(t.at)', 'last_at')}"
    return {
        "v_job_kernels": f"""
            SELECT n.name AS namespace, t.job, t.actor, t.key, {hexa("t.kernel_digest")}, t.target,
                   {hexa("t.toolchain")}, {total(served, "served")}, {total(compiled, "compiled")},
                   {total(published, "compile_us")}, {total("t.saved_us", "saved_us")}, {span}
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE t.job <> '' AND length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, t.namespace_id, t.job, t.actor, t.key, t.kernel_digest, t.target, t.toolchain""",
        "v_kernel_users": f"""
            SELECT n.name AS namespace, {hexa("t.kernel_digest")}, t.key, t.target, t.actor, t.job, t.peer,
                   {total(served, "served")}, {total(compiled, "compiled")},
                   {total("t.byte_count", "bytes")}, {total("t.saved_us", "saved_us")}, {span}
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
            GROUP BY n.name, t.namespace_id, t.kernel_digest, t.key, t.target, t.actor, t.job, t.peer""",
        "v_toolchain_artifacts": f"""
            SELECT n.name AS namespace, {hexa("k.toolchain")}, k.key, {hexa("k.kernel_digest")}, k.target,
                   l.kind, {hexa("a.digest", "artifact_digest")}, a.size,
                   {time("k.created_at", "created_at")}, u.actor, u.job, u.requests,
                   {time("u.last_at", "last_at")}
            FROM kernels k
            JOIN namespaces n ON n.id = k.namespace_id
            JOIN kernel_artifacts l ON l.kernel_id = k.id
            JOIN artifacts a ON a.id = l.artifact_id
            LEFT JOIN (
                SELECT t.namespace_id, t.kernel_digest, t.actor, t.job,
                       {total("t.request_count", "requests")}, MAX(t.at) AS last_at
                FROM audit_events t
                WHERE length(t.kernel_digest) > 0 AND t.kind IN ('serve', 'publish')
                GROUP BY t.namespace_id, t.kernel_digest, t.actor, t.job
            ) u ON u.namespace_id = k.namespace_id AND u.kernel_digest = k.kernel_digest""",
        "v_misses": f"""
            SELECT n.name AS namespace, t.outcome AS reason, {hexa("t.program_digest")}, t.key, t.target,
                   {total("t.request_count", "misses")}, COUNT(DISTINCT t.actor) AS actors,
                   COUNT(DISTINCT t.job) AS jobs, {span}
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE t.kind = 'miss'
            GROUP BY n.name, t.namespace_id, t.outcome, t.program_digest, t.key, t.target""",
        "v_time_saved": f"""
            SELECT n.name AS namespace, {day} AS day, {total(served, "served")},
                   {total("t.saved_us", "saved_us")}, {total(compiled, "compiled")},
                   {total(published, "compile_us")}
            FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
            WHERE t.kind IN ('serve', 'publish')
            GROUP BY n.name, t.namespace_id, {day}""",
    }
