"""The event log: port, adapters in memory and in SQLite, schema, public views, digest chain."""

from .event_log import EventLog

__all__ = ["EventLog"]
