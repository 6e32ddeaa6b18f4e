"""Scheduler bugs on purpose: each as code that goes to the end of a module of the engine.

A test puts one into this process (`seeded`), or into a commit of a repository (`patched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest


class Patch(NamedTuple):
    """A method of a class, replaced by a function of `code`."""

    module: str
    owner: str
    method: str
    code: str


ANYBODY_IS_A_VICTIM = Patch(
    "rlt_fsm.preemption", "Preemption", "_block_victims",
    '''
def _anybody(self, requester):
    """Victims that need not be worse than the requester: least urgent first, then largest."""
    victims = [
        request
        for request in self._state.by_ref.values()
        if request is not requester
        and request.blocks
        and not request.work.startswith("TAKEN:")
        and request.status in {"ACTIVE", "WAITING"}
    ]
    return sorted(victims, key=lambda r: (r.spec.params.priority, r.blocks), reverse=True)
''',
)  # fmt: skip
NOTHING_IS_KEPT = Patch(
    "rlt_fsm.preemption", "Preemption", "_evict",
    '''
def _throw_away(self, victim, requester):
    """A suspension that keeps nothing of what was computed."""
    self._runner.release(victim.spec)
    fact = Rewound(victim.ref, HOST_FULL, requester.ref, victim.block_ids)
    self._recorder.record(fact, cause=requester.queued_seq)
''',
)  # fmt: skip
ABORTS_KEEP_THEIR_SLOT = Patch(
    "rlt_fsm.engine", "Engine", "_abort",
    '''
_abort_rightly = Engine._abort


def _abort_and_keep(self, request):
    """An abort that never retires a request with a slot."""
    if request.slot != "HELD":
        _abort_rightly(self, request)
        return
    self._recorder.record(Aborted(request.ref))
    self._pending.append(output_of(request))
''',
)  # fmt: skip
PREEMPTED_GO_LAST = Patch(
    "rlt_fsm.order", "Waiting", "add",
    '''
def _add_last(self, request):
    """A preempted request goes to the end of the line instead of back to its place."""
    was_running = request.work != "IDLE" or request.exit_depths
    key = (10**9, request.queued_seq) if was_running else request.order_key
    insort(self._entries, (key, request), key=lambda entry: entry[0])
''',
)  # fmt: skip
AND_ARE_FOUND_THERE = Patch(
    "rlt_fsm.order", "Waiting", "remove",
    '''
def _remove_anywhere(self, request):
    """Take a request out, wherever it stands."""
    self._entries = [entry for entry in self._entries if entry[1] is not request]
''',
)  # fmt: skip

BUGS = {
    "no-order-no-progress": (ANYBODY_IS_A_VICTIM, NOTHING_IS_KEPT),
    "slot-leaked-on-abort": (ABORTS_KEEP_THEIR_SLOT,),
    "wrong-place-in-line": (PREEMPTED_GO_LAST, AND_ARE_FOUND_THERE),
}


def _name(patch: Patch) -> str:
    return patch.code.split("def ", 1)[1].partition("(")[0]


@contextmanager
def seeded(bug: str) -> Iterator[None]:
    """The engines of this process have a bug for as long as this lasts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for patch in BUGS[bug]:
            module = import_module(patch.module)
            names = dict(vars(module))
            exec(compile(patch.code, f"{bug}.py", "exec"), names)
            monkeypatch.setattr(getattr(module, patch.owner), patch.method, names[_name(patch)])
        yield


def patched(folder: Path, bug: str) -> None:
    """Write a bug into the packages of a folder."""
    for patch in BUGS[bug]:
        file = folder / f"{patch.module.replace('.', '/')}.py"
        line = f"{patch.owner}.{patch.method} = {_name(patch)}\n"
        file.write_text(f"{file.read_text()}\n{patch.code}\n\n{line}")
