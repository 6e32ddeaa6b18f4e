"""What a person sees on a real terminal: how far a long run is, and colours."""

import fcntl
import io
import os
import struct
import sys
import termios

import pytest
import typer

from rlt_fsm import oplog, progress_line
from rlt_fsm.command_output import Status, mistakes_in_one_sentence, print_text
from rlt_fsm.progress_line import Pace, ProgressLine, duration
from runner import cli
from runner.run_status import audit_progress
from runner.terminal import log_to_stderr


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal:
    """A pseudo-terminal: what is written to `stream`, and the lines that a person sees."""

    def __init__(self):
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.written = ""
        self.resize(60)

    def resize(self, columns):
        self.columns = columns
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        """Everything written so far."""
        self.stream.flush()
        try:
            while data := os.read(self._master, 65_536):
                self.written += data.decode()
        except BlockingIOError:
            pass
        return self.written

    def screen(self):
        lines, column = [""], 0
        for character in self.read():
            if character == "\r":
                column = 0
            elif character == "\n":
                lines.append("")
            else:
                line = lines[-1].ljust(column)
                lines[-1] = line[:column] + character + line[column + 1 :]
                column += 1
                assert column < self.columns, "the line would wrap"
        return [line.rstrip() for line in lines]

    def close(self):
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def tty():
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def clock():
    return Clock()


def test_nothing_is_shown_in_the_first_seconds_and_then_ten_times_a_second(tty, clock):
    line = ProgressLine(stream=tty.stream, clock=clock)
    line.show("too early")
    clock.now += 2.0
    line.show("first")
    line.show("at once again")
    clock.now += 0.2
    line.show("second")
    assert tty.read() == "\rfirst\rsecond"


def test_a_line_is_cut_to_the_terminal_and_leaves_nothing_behind(tty, clock):
    with ProgressLine(stream=tty.stream, clock=clock) as line:
        clock.now += 5
        line.show("x" * 200)
        assert tty.screen() == ["x" * 59]
        clock.now += 5
        line.show("short")
        assert tty.screen() == ["short"]
    assert tty.screen() == [""]
    assert "\x1b" not in tty.read()  # no colours and no codes: NO_COLOR changes nothing


def test_a_pipe_and_whoever_wants_quiet_see_nothing(tty, clock):
    pipe = io.StringIO()
    for line in (
        ProgressLine(stream=pipe, clock=clock),
        ProgressLine(stream=tty.stream, clock=clock, is_wanted=False),
    ):
        clock.now += 60
        assert not line.is_due
        line.show("here")
        line.clear()
    assert (pipe.getvalue(), tty.read()) == ("", "")


def test_an_audit_tells_how_much_it_has_read(tty, clock):
    line = ProgressLine(stream=tty.stream, clock=clock)
    clock.now += 5
    audit_progress(line)(50_000, 200_000)
    assert tty.screen() == ["[#####...............] audited 50,000 of 200,000 events"]


def test_a_count_has_its_rate_and_the_time_that_is_left(tty, clock):
    tty.resize(100)
    line = ProgressLine(stream=tty.stream, clock=clock)
    line.count(0, 200_000, "read", "event")
    clock.now += 5
    line.count(50_000, 200_000, "read", "event")
    told = "[#####...............] read 50,000 of 200,000 events, 10,000/s, 15 s left"
    assert tty.screen() == [told]


def test_a_count_that_falls_or_has_another_end_begins_anew(clock):
    pace = Pace(clock)
    pace.note(0, 100)
    clock.now += 10
    pace.note(100, 100)
    assert pace.text() == ", 10/s, 0 s left"
    pace.note(0, 500)
    clock.now += 10
    pace.note(20, 500)
    assert pace.text() == ", 2.0/s, 4 min 00 s left"


def test_without_an_end_only_the_rate_is_told(clock):
    pace = Pace(clock)
    clock.now += 2
    pace.note(30, 0)
    assert pace.text() == ", 15/s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (59, "59 s"), (125, "2 min 05 s"), (11_400, "3 h 10 min")]
)
def test_a_time_is_told_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("no_color", "has_codes"), [("", True), ("1", False)])
def test_a_log_line_takes_the_place_of_the_status_line(
    tty, clock, monkeypatch, no_color, has_codes
):
    monkeypatch.setattr(sys, "stderr", tty.stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    line = ProgressLine(clock=clock)
    log_to_stderr("warning", line)
    clock.now += 5
    line.show("[###.................] 3 of 20 requests")
    oplog.logger().warning("slow")
    written = tty.read().rpartition("\r\n")[0]
    assert ("\x1b[" in written) is has_codes
    assert "slow" in written.rpartition("\r")[2]


@pytest.fixture
def rlt_fsm(tty, capsys, tmp_path, monkeypatch):
    """Call the command in an empty folder, its stderr a terminal and every step worth telling;
    the status and what is on stdout.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress_line, "SHOW_PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr(progress_line, "REDRAW_EVERY_S", 0.0)
    tty.resize(100)

    def call(*arguments):
        monkeypatch.setattr(sys, "stderr", tty.stream)  # here: pytest sets its own between phases
        arguments = ["run", "--model", "sim", "--prompt", "hi", "--prompt", "you", *arguments]
        return cli.app(arguments, standalone_mode=False), capsys.readouterr().out

    return call


def test_a_run_tells_how_far_it_is_and_takes_the_line_away(rlt_fsm, tty):
    status, shown = rlt_fsm("--max-tokens", "3")
    assert status == 0
    assert "2 requests, 6 tokens" in shown
    told = [text.rstrip() for text in tty.read().split("\r") if text.strip()]
    first, last = told[0], told[-1]
    assert first.startswith(
        "[....................] 0 of 2 requests, 2 running, 0 waiting, 0 tokens"
    )
    assert last.startswith(
        "[####################] 2 of 2 requests, 0 running, 0 waiting, 6 tokens ("
    )
    assert last.endswith(", step 14")
    assert tty.read().endswith("\r")
    assert tty.read().rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def test_a_quiet_run_tells_nothing_but_its_results(rlt_fsm, tty):
    status, shown = rlt_fsm("--max-tokens", "3", "--quiet")
    assert (status, tty.read()) == (0, "")
    assert "audit clean" in shown


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_verdict_has_its_color_on_a_terminal_alone(tty, monkeypatch, environment, is_colored):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", tty.stream)
    print_text("a table\nfindings: S7", Status.NO)
    expected = "\x1b[31mfindings: S7\x1b[0m" if is_colored else "findings: S7"
    assert tty.read() == f"a table\r\n{expected}\r\n"


def test_a_pipe_has_no_colors(capsys):
    print_text("clean", Status.WELL)
    assert capsys.readouterr().out == "clean\n"


def test_an_interrupt_is_no_answer(capsys):
    with pytest.raises(typer.Exit) as ended, mistakes_in_one_sentence("the log keeps it"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "interrupted: the log keeps it\n"
