"""SQLite: connections and database files."""
