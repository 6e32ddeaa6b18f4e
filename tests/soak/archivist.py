"""`rlt-audit archive` beside a soak, in a process of its own: one archive after another."""

import subprocess
import sys
from pathlib import Path

STEPS_LEFT = 500  # at least so many of the newest stay in the log


class Archivist:
    """Archives a log's beginning whenever it is asked and not at it already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[str] | None = None
        self.archives: list[Path] = []

    def begin(self, current_step: int) -> None:
        """Take out what is old, unless the last archive is still being made."""
        if self._process is not None and self._process.poll() is None:
            return
        self.wait()
        into = self._path.with_name(f"{self._path.stem}.{len(self.archives) + 1:04}.db")
        words = ["archive", str(self._path), "--before-step", str(current_step - STEPS_LEFT)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from audit.cli import main; main()", *words, "-o", str(into)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.archives.append(into)

    def wait(self) -> None:
        """Wait for the archive that is being made.

        Raises:
            AssertionError: it was refused, or could not be made.
        """
        if self._process is not None:
            told, _ = self._process.communicate()
            assert self._process.returncode == 0, told
            self._process = None

    @property
    def archived_bytes(self) -> int:
        """The size of the archives that are there."""
        return sum(path.stat().st_size for path in self.archives if path.exists())
