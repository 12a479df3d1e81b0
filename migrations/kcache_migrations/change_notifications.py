"""Triggers of Postgres that notify listeners of changed rows: ids only, sent when the transaction commits.

Every replica is notified, whichever statement changes a row; nothing is sent for a read or a heartbeat.
A lost notification costs only time: listeners also poll.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Name of the channel. Payloads: ``lease:NAMESPACE:DIGEST``, ``kernel:NAMESPACE:KEY``, ``namespace:ID``.
CHANNEL = "kcache"

_FUNCTION = f"""
CREATE FUNCTION kcache_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE what text;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'leases' THEN what := format('lease:%s:%s', NEW.namespace_id, encode(NEW.kernel_digest, 'hex'));
        WHEN 'kernels' THEN what := format('kernel:%s:%s', NEW.namespace_id, NEW.key);
        WHEN 'namespaces' THEN what := format('namespace:%s', NEW.id);
        ELSE what := format('namespace:%s', coalesce(NEW.namespace_id, OLD.namespace_id));
    END CASE;
    PERFORM pg_notify('{CHANNEL}', what);
    RETURN NULL;
END $$
"""

#: Table -> the events of its rows that other servers wait for, or whose rows they cache.
_EVENTS = {
    "leases": "UPDATE ON leases FOR EACH ROW WHEN ((OLD.holder, OLD.stages) <> (NEW.holder, NEW.stages))",
    "kernels": "INSERT ON kernels FOR EACH ROW",
    "namespaces": "UPDATE ON namespaces FOR EACH ROW",
    "disowned_toolchains": "INSERT OR DELETE ON disowned_toolchains FOR EACH ROW",
}


def notification_statements() -> Iterator[str]:
    """Yield the statements that create the function and its triggers."""
    yield _FUNCTION
    for table, event in _EVENTS.items():
        yield f"CREATE TRIGGER {table}_tell AFTER {event} EXECUTE FUNCTION kcache_tell()"


def notification_removal() -> Iterator[str]:
    """Yield the statements that drop them."""
    for table in _EVENTS:
        yield f"DROP TRIGGER {table}_tell ON {table}"
    yield "DROP FUNCTION kcache_tell()"
