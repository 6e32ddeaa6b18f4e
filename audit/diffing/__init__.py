"""How two runs are compared: each side's rows, its account, where they part, what each chose there.

`audit/diff.py` puts the answer together; nothing here prints.
"""
