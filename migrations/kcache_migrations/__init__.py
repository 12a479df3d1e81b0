"""Every schema that a kcache store ever had, and the way from each to the next.

Imports alembic and sqlalchemy only: a migration means the same for ever, whatever becomes of the code.
``kcache_grpc.storage.migration`` runs it; there is no ini file.
"""

from __future__ import annotations

from pathlib import Path

#: Alembic's ``script_location``.
LOCATION = Path(__file__).parent
