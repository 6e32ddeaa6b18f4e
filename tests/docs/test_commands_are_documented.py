"""The command-line page names every command and option that the programs have."""

import re

import pytest

from docs.generate.pasted import ROOT, shell

CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
COMMAND = re.compile(r"^[ │]*([a-z][a-z-]+) {2,}\S", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
NOT_OURS = {"--help", "--version", "--install-completion", "--show-completion"}


@pytest.fixture(scope="module")
def run():
    with shell() as run:
        yield run


def commands_in_help(run, program: str) -> list[str]:
    """As they are typed; those of a group in place of the group."""
    _, _, listed = run(f"{program} --help").partition("Commands:")
    typed = [f"{program} {name}" for name in COMMAND.findall(listed)]
    return [one for name in typed for one in commands_in_help(run, name) or [name]]


@pytest.mark.parametrize("program", ["rlt-fsm", "rlt-audit"])
def test_every_command_and_option_is_on_the_page(program, run):
    page = CLI_PAGE.read_text(encoding="utf-8")
    commands = commands_in_help(run, program)
    assert commands, "the help lists its commands"
    for command in commands:
        heading = f"### {command}\n"
        assert heading in page, f"{command} is documented"
        section = page.partition(heading)[2].partition("\n### ")[0]
        options = set(OPTION.findall(run(f"{command} --help"))) - NOT_OURS
        for option in options:
            assert option in section, f"{command} {option} is documented"
