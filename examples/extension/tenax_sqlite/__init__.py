"""SQLite tables as sources and sinks of Tenax, with its public names alone."""

from tenax_sqlite.sink import SqliteSink
from tenax_sqlite.source import SqliteSource

__all__ = ["SqliteSink", "SqliteSource"]
