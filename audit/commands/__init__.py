"""The commands of `rlt-audit`, one file each: arguments in, text or JSON out, an exit status.

A command's file has a function `register(app)`. What it computes lives in the library; what all
commands share (statuses, errors, progress) in `common.py`.
"""
