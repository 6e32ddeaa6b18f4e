"""One run, or two held against each other, as a page to look at: a single file without network.

`gather.py` reads the run, `waits.py` its times, `packed.py` makes its columns small, `page.py`
fills `page/report.html` with them, the styles and the scripts. Nothing here judges: findings come
from `audit.verify`, differences from `audit.diff`.
"""
