"""Key spaces, their counters and limits."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from kcache_grpc.storage.schema.columns import (
    METADATA,
    bytes_column,
    id_column,
    int_column,
    is_digest,
    namespace_column,
    text_column,
)

store_meta = Table("store_meta", METADATA, Column("name", Text, primary_key=True), text_column("value"))

namespaces = Table(
    "namespaces",
    METADATA,
    id_column(),
    text_column("name"),
    int_column("epoch", "1"),
    int_column("created_at"),
    #: Rises with every transaction that removes or quarantines what may be remembered.
    int_column("removals", "0"),
    UniqueConstraint("name"),
    CheckConstraint("epoch >= 1", name="epoch"),
    sqlite_autoincrement=True,
)

key_counters = Table(
    "key_counters",
    METADATA,
    Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), primary_key=True, autoincrement=False),
    int_column("last_key", "0"),
    CheckConstraint("last_key >= 0", name="last_key"),
)


#: The most that a namespace may hold of a resource, what is done about more, and what it holds.
quotas = Table(
    "quotas",
    METADATA,
    namespace_column(),
    text_column("resource"),
    int_column("most"),
    int_column("updated_at"),
    text_column("policy", "'evict'"),
    int_column("used", "0"),
    PrimaryKeyConstraint("namespace_id", "resource"),
    CheckConstraint("most >= 0", name="most"),
)

#: What eviction must leave.
pins = Table(
    "pins",
    METADATA,
    namespace_column(),
    text_column("subject"),
    bytes_column("digest"),
    text_column("reason"),
    int_column("created_at"),
    PrimaryKeyConstraint("namespace_id", "subject", "digest"),
    *is_digest("digest"),
)

#: Kernels of these toolchains are never served again.
disowned_toolchains = Table(
    "disowned_toolchains",
    METADATA,
    namespace_column(),
    bytes_column("toolchain"),
    text_column("reason"),
    int_column("created_at"),
    PrimaryKeyConstraint("namespace_id", "toolchain"),
    *is_digest("toolchain"),
)
