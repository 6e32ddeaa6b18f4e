"""`rlt-audit shrink`: the smallest workload that breaks the same rule, or differs in the same way.

Who can run a workload is handed in by `cli.py`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Protocol

import msgspec
import typer

from audit.comparing.runs import Code
from audit.comparing.worktrees import checked_out, repository, resolve
from audit.diffing.difference import Level
from audit.invariants import ALL, S13Log
from audit.reader import open_log
from audit.shrink import ShrinkError, Shrunk, Size, shrink
from audit.shrinking.observers import (
    Observe,
    RunInto,
    by_comparing,
    by_rules,
    in_code,
    in_process,
)
from audit.shrinking.symptoms import Symptom, findings_of
from rlt_fsm.config import settings_of
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import EventStore
from rlt_fsm.wording import counted, did_you_mean

from .common import ProgressLine, mistakes_in_one_sentence, print_json
from .compare import ended_by_signals
from .diff import LevelName

RULES: Final = (*(rule.id for rule in ALL), S13Log.id)
HELP = """Make the workload of a run small, without losing what is wrong with it.

Example: rlt-audit shrink run.db -o small.json

Kept is the run's first finding: the same invariant, at the same kind of place. With --set or --base
it is the first difference instead: between the recorded configuration and another one, or between
another revision of the code (in a git worktree) and today's. What is left cannot be shortened any
further: no request, action, token or setting can go. Run it with `rlt-fsm run --workload`.

Exit status: 0 a small workload was found, 2 there is nothing to keep, the run does not repeat, or
its log cannot be used.
"""


class Runs(Protocol):
    """What can run workloads."""

    def workload_of(self, store: EventStore, run_id: int) -> str:
        """The text of the workload that a run came from, or of one that is like it."""

    def on_sim(self, settings: Mapping[str, str], *, check: bool) -> RunInto:
        """Today's scheduler on the sim, under another configuration."""


def register(app: typer.Typer, runs: Callable[[], Runs]) -> None:
    """Add the command to `app`; `runs` gives what runs workloads."""

    @app.command(name="shrink", help=HELP)
    def _command(
        db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
        *,
        out: Annotated[
            str | None,
            typer.Option("--out", "-o", help="Write the workload here; else it is printed.",
                         metavar="FILE"),
        ] = None,
        run: Annotated[
            int | None, typer.Option(help="The run; by default the newest.", metavar="N")
        ] = None,
        finding: Annotated[
            str | None,
            typer.Option(help="Keep the first finding of this invariant.", metavar="ID"),
        ] = None,
        settings: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="SECTION.FIELD=VALUE",
                         help="Keep the first difference that this makes; repeat it."),
        ] = None,
        base: Annotated[
            str | None,
            typer.Option(help="Keep the first difference to this revision.", metavar="REV"),
        ] = None,
        repo: Annotated[str, typer.Option(help="The repository of REV.", metavar="DIR")] = ".",
        level: Annotated[
            LevelName, typer.Option(help="On which level runs differ.", metavar="LEVEL")
        ] = LevelName.SCHEDULE,
        as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    ) -> None:  # fmt: skip
        with ended_by_signals(), mistakes_in_one_sentence(), ProgressLine() as progress:
            changes = settings_of(settings or [])
            ask = _Ask(db, run, finding, changes, base, repo, level.value)
            found = ask.answer(runs(), progress.show)
            text = msgspec.json.format(msgspec.json.encode(found.workload), indent=1).decode()
            if out is not None:
                _write(out, text)
        if as_json:
            print_json(found)
        else:
            typer.echo(as_text(found, out) if out is not None else text)


class _Ask:
    """What is asked for: a run, and what must not get lost of it."""

    def __init__(
        self,
        db: str,
        run: int | None,
        finding: str | None,
        settings: dict[str, str],
        base: str | None,
        repo: str,
        level: Level,
    ) -> None:
        if bool(settings) + (base is not None) + (finding is not None) > 1:
            raise ShrinkError("--finding, --set and --base each name what is kept: give one")
        if finding is not None and finding not in RULES:
            instead = did_you_mean(finding, RULES) or f"there are {', '.join(RULES)}"
            raise ShrinkError(f"--finding {finding}: no such invariant: {instead}")
        self._db = db
        self._run = run
        self._finding = finding
        self._settings = settings
        self._base = base
        self._repo = repo
        self._level = level

    def answer(self, runs: Runs, tell: Callable[[str], None]) -> Shrunk:
        """Make the workload of the run small."""
        with EventLog.open_for_reading(self._db) as store, open_log(store) as log:
            run_id = log.newest() if self._run is None else self._run
            run = log.run(run_id)
            workload = runs.workload_of(store, run_id)
            kept, step = None, None
            if not self._settings and self._base is None:
                kept, step = self._recorded(store, run_id, is_over=run.info.ended_at is not None)
        with self._observer(runs, is_unfinished=kept is None) as observe:
            return shrink(workload, observe, symptom=kept, step=step, tell=tell)

    def _recorded(
        self, store: EventStore, run_id: int, *, is_over: bool
    ) -> tuple[Symptom | None, int | None]:
        """What the log itself shows, and at which step; None for a run that only broke off."""
        for symptom, finding in findings_of(store, run_id).items():
            if self._finding in (None, symptom.what):
                return symptom, finding.step
        if is_over or self._finding is not None:
            rule = "no rule" if self._finding is None else f"no {self._finding}"
            raise ShrinkError(
                f"{self._db}: run {run_id} breaks {rule}: there is nothing to keep (--set and "
                "--base keep a difference)"
            )
        return None, None

    @contextmanager
    def _observer(self, runs: Runs, *, is_unfinished: bool) -> Iterator[Observe]:
        today = runs.on_sim({}, check=False)
        if self._settings:
            changed = runs.on_sim(self._settings, check=False)
            yield by_comparing(in_process(today), in_process(changed), self._level)
        elif self._base is not None:
            top = repository(Path(self._repo))
            revision = resolve(top, self._base)
            with tempfile.TemporaryDirectory(prefix="rlt-audit-") as name:
                folder = Path(name).resolve()
                with (
                    checked_out(top, revision, folder / "base") as checkout,
                    Code(checkout) as code,
                ):
                    side = in_code(code, folder)
                    yield by_comparing(side, in_process(today), self._level)
        else:
            # The rules find what is wrong in a log; a run that broke off may need the sim's own.
            yield by_rules(runs.on_sim({}, check=is_unfinished))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise LogUnavailable(f"{path}: cannot be written ({error.strerror or error})") from error


def as_text(found: Shrunk, out: str) -> str:
    """What is left, and what it shows."""
    symptom: Symptom = found.symptom
    end = (
        "nothing more can be removed or lowered"
        if found.is_minimal
        else "the trials were used up: more may be possible"
    )
    return "\n".join(
        [
            f"kept: {symptom}",
            f"  {found.message}",
            f"before: {_size(found.before)}",
            f"after:  {_size(found.after)}",
            f"{counted(found.trials, 'trial')}: {end}",
            f"written: {out}",
        ]
    )


def _size(size: Size) -> str:
    return (
        f"{counted(size.requests, 'request')}, {counted(size.actions, 'action')}, "
        f"{counted(size.settings, 'setting')}, {counted(size.steps, 'step')}"
    )
