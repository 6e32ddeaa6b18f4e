"""Two revisions of a repository side by side: their worktrees, and workloads run in each.

`audit/compare.py` puts the answer together; nothing here prints or reads a log.
"""
