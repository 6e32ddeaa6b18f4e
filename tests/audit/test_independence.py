"""A checker that reuses what it checks is worthless: what the auditor may import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import audit
from audit.invariants import ALL, S13Log

ROOT = Path(audit.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ALLOWED = {
    "rlt_fsm.arguments",
    "rlt_fsm.command_output",
    "rlt_fsm.errors",
    "rlt_fsm.log.chained",
    "rlt_fsm.log.event_log",
    "rlt_fsm.log.location",
    "rlt_fsm.log.new_file",
    "rlt_fsm.log.port",
    "rlt_fsm.log.presence",
    "rlt_fsm.log.view_columns",
    "rlt_fsm.log.view_reader",
    "rlt_fsm.machines",
    "rlt_fsm.progress_line",
    "rlt_fsm.states",
    "rlt_fsm.wording",
}
# Composition roots hand an engine to what drives one: nothing else in the auditor knows it. What
# makes a failing workload small is blind to why it fails.
ROOTS = {
    "archive.py": {"rlt_fsm.log.archiving"},
    "rotation.py": {"rlt_fsm.log.sole_archiver"},
    "commands/join.py": {"rlt_fsm.log.joining"},
    "cli.py": {
        "rlt_fsm.checkpoint",
        "rlt_fsm.command_line",
        "rlt_fsm.replay",
        "runner.recorded",
        "runner.sim_runs",
        "runner.terminal",
    },
    "pytest_plugin.py": {
        "rlt_fsm",
        "rlt_fsm.config",
        "rlt_fsm.workload",
        "runner",
        "runner.simulate_check",
    },
    "commands/replay.py": {"rlt_fsm.config"},
    "commands/shrink.py": {"rlt_fsm.config"},
    "shrink.py": {"rlt_fsm.workload_shrink"},
}
CONTRACT = [
    *("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13"),
    *("F1", "F2", "F3", "F4", "L1", "L2", "L3", "D1", "D2"),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_auditor_imports_declarations_and_the_log_port_alone(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(node.module)
    ours = {name for name in imported if name and name.split(".")[0] in ("rlt_fsm", "runner")}
    assert ours <= ALLOWED | ROOTS.get(str(path.relative_to(ROOT)), set())


def test_there_is_one_class_for_each_id_and_it_says_what_it_reads() -> None:
    rules = [*ALL, S13Log]
    assert sorted(rule.id for rule in rules) == sorted(CONTRACT)
    for rule in rules:
        assert len(rule.__doc__ or "") > 80, rule.id
