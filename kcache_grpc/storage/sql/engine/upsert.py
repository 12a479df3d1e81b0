"""``INSERT ... ON CONFLICT``: SQLite has PostgreSQL's form, so one statement compiles for both.

The one place that says so. A database with another form needs its own ``insert`` here.
"""

from __future__ import annotations

from sqlalchemy.dialects.postgresql import Insert as Insert
from sqlalchemy.dialects.postgresql import insert as insert
