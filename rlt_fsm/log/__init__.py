"""The event log: port, adapters in memory and in SQLite, schema, public views, digest chain."""
