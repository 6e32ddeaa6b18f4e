"""What the public views of one run say, in the forms that metrics have."""

import sqlite3
from bisect import bisect_left
from collections import Counter

from rlt_fsm.counts import SECONDS


class Views:
    """What the public views of one run say."""

    def __init__(self, path):
        self._db = sqlite3.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._db.close()

    def all(self, sql):
        return self._db.execute(sql).fetchall()

    def one(self, sql):
        return self.all(sql)[0][0]

    def pairs(self, sql):
        return dict(self.all(sql))

    def histogram(self, sql):
        times = [ns / 1e9 for (ns,) in self.all(sql)]
        counts = Counter(bisect_left(SECONDS, seconds) for seconds in times)
        return tuple(counts[place] for place in range(len(SECONDS) + 1)), sum(times)
