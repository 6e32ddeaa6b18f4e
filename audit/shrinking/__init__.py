"""What shrinking holds on to: a symptom, and the two ways to look for one.

`audit/shrink.py` makes the workload small; nothing here prints.
"""
