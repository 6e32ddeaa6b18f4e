"""`rlt-audit archive --every` beside a soak, in a process of its own, until the run is over."""

import subprocess
import sys
from pathlib import Path

from .samples import resident_bytes

KEEP_EVENTS = 100_000
LAST_TURN_S = 600  # for what is old when the run is over


class Rotation:
    """Archives what is old in a log, once in so many seconds."""

    def __init__(self, path: Path, every_s: float) -> None:
        self.every_s = every_s
        self.most_resident = 0  # of its process, as far as anybody looked
        self._into = path.with_name("archives")
        self._into.mkdir()
        words = ["archive", str(path), "--into", str(self._into), "--every", str(every_s)]
        words += ["--keep-events", str(KEEP_EVENTS)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from audit.cli import main; main()", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def archives(self) -> list[Path]:
        """Those that are there, oldest first."""
        return sorted(self._into.glob("*.db"))

    def look(self) -> int:
        """The size of the archives that are there.

        Raises:
            AssertionError: the rotation ended before its time.
        """
        assert self._process.poll() is None, self._process.communicate()[0]
        self.most_resident = max(self.most_resident, resident_bytes(self._process.pid))
        return self.archived_bytes

    @property
    def archived_bytes(self) -> int:
        """The size of the archives that are there."""
        return sum(path.stat().st_size for path in self.archives)

    def end(self) -> str:
        """Wait until it ends by itself, since the run is over; what it said last.

        Raises:
            AssertionError: it was refused, or could not store something in the end.
        """
        told, _ = self._process.communicate(timeout=LAST_TURN_S)
        assert self._process.returncode == 0, told
        return str(told.splitlines()[-1])
