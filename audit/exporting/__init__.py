"""A run in the forms of other tools: a trace to look at, tables to compute with, lines to pipe.

Everything is streamed: what an export holds in memory does not grow with the run.
"""

from .jsonl import export_jsonl
from .parquet import export_parquet
from .trace import TimeAxis, export_trace

__all__ = ["TimeAxis", "export_jsonl", "export_parquet", "export_trace"]
