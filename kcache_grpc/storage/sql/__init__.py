"""The store on SQL databases. Nothing of SQLAlchemy leaves this package."""
