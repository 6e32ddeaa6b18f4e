"""What holds for every command of both programs, also for one that is added tomorrow."""

import shlex
import subprocess
import sys

import pytest
from known_commands import COMMANDS, PROGRAMS, Known, called, every_command, typed

# What a command needs beyond files, and the option that names a file where no argument does.
REQUIRED = {"--request": "a", "--base": "HEAD", "--format": "jsonl"}
EITHER = {"--before-step": ["--before-step", "1", "--discard"]}  # this or another is required
FILE_OPTIONS = ("--workload", "--out", "-o")


def is_one_sentence(text: str) -> bool:
    return text.startswith("error: ") and text.count("\n") == 1 and "Traceback" not in text


def with_file(known: Known, path: str) -> list[str]:
    """Arguments that are right but for the file."""
    words = [
        path
        for parameter in known.command.params
        if parameter.param_type_name == "argument" and parameter.required
    ]
    for name, parameter in known.options.items():
        if parameter.required and name.startswith("--"):
            words += [name, path if name in FILE_OPTIONS else REQUIRED[name]]
    for name, more in EITHER.items():
        words += more if name in known.options else []
    if path not in words:
        words += [next(name for name in FILE_OPTIONS if name in known.options), path]
    return words


def test_there_are_commands_to_look_at():
    assert len(COMMANDS) >= 12


@every_command
def test_help_is_the_same_as_h_and_has_an_example_that_can_be_typed(known):
    shown = typed(known, "--help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert typed(known, "-h").stdout == shown.stdout
    text = " ".join(shown.stdout.split())
    start = " ".join(("Example:", known.program, *known.words))
    assert start in text, "an example"
    example = shown.stdout.partition("Example: ")[2].partition("\n\n")[0]
    program, *words = shlex.split(example)
    words = words[len(known.words) :]
    with known.command.make_context(program, words) as context:
        assert context.args == [], "the example has no words too many"


@every_command
def test_a_machine_can_have_the_answer_as_json(known):
    assert "--json" in known.options


@every_command
def test_a_mistyped_option_is_one_sentence_with_the_nearest_and_status_2(known):
    result = typed(known, "--jsno")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no such option --jsno: did you mean --json?\n"


@every_command
@pytest.mark.parametrize("kind", ["missing", "folder", "garbage"])
def test_a_file_that_cannot_be_used_is_one_sentence_and_status_2(
    known, kind, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "input"
    if kind == "folder":
        path.mkdir()
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)) * 40)
    if known.words == ("bench",):
        pytest.skip("reads no file")
    patience = ["--patience", "0"] if known.words == ("watch",) else []
    result = typed(known, *with_file(known, str(path)), *patience)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert is_one_sentence(result.stderr), result.stderr


@pytest.mark.parametrize(
    ("program", "word", "sentence"),
    [
        ("rlt-audit", "verfy", "no such command 'verfy': did you mean verify?"),
        ("rlt-fsm", "simulat", "no such command 'simulat': did you mean simulate?"),
        ("rlt-fsm", "model inspekt", "no such command 'inspekt': did you mean inspect?"),
        ("rlt-fsm", "zzz", "no such command 'zzz': rlt-fsm has run, simulate, bench"),
    ],
)
def test_a_mistyped_command_is_one_sentence_with_the_nearest_and_status_2(program, word, sentence):
    result = called(program, *word.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {sentence}")


@pytest.mark.parametrize(
    ("program", "words", "sentence"),
    [
        (
            "rlt-fsm",
            "run --model sim --set sheduler.mode=x",
            "no such field: did you mean scheduler",
        ),
        ("rlt-fsm", "run --model sim --set scheduler.mode", "must be SECTION.FIELD=VALUE"),
        ("rlt-fsm", "simulate --steps many", "invalid value for '--steps'"),
        ("rlt-audit", "diff a b --level evens", "'evens' is not one of 'schedule', 'outputs'"),
        ("rlt-audit", "shrink a --finding s7", "no such invariant: did you mean S7?"),
        ("rlt-audit", "explain a", "missing option '--request'"),
        ("rlt-audit", "verify", "missing argument 'DB'"),
        ("rlt-audit", "state a b", "got unexpected extra argument"),
    ],
)
def test_other_slips_are_one_sentence_and_status_2(program, words, sentence):
    result = called(program, *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert is_one_sentence(result.stderr), result.stderr
    assert sentence in result.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_without_words_shows_its_help_and_knows_its_version(program):
    alone = called(program)
    asked = called(program, "--help")
    assert (alone.exit_code, alone.stdout) == (0, asked.stdout)
    version = called(program, "--version")
    assert (version.exit_code, version.stdout.split()[0]) == (0, program)


@pytest.mark.parametrize(
    ("module", "program", "word", "whole"),
    [
        ("runner.cli", "rlt-fsm", "sim", "simulate"),
        ("audit.cli", "rlt-audit", "time", "timeline"),
        ("audit.cli", "rlt-audit", "verify --js", "--json"),
    ],
)
def test_the_shell_completes_commands_and_options(module, program, word, whole):
    """As bash asks: the words so far, and which of them is being typed."""
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import main; main()"],
        env={
            variable: "complete_bash",
            "COMP_WORDS": f"{program} {word}",
            "COMP_CWORD": str(len(word.split())),
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", [whole])
