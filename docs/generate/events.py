"""The events page: one class for each fact, from `rlt_fsm/events.py`."""

import inspect

import msgspec

from rlt_fsm import events
from rlt_fsm.machines import public_trigger

from .machines import fact_classes, triggers_of
from .markdown import Block, code, table


def _table_of(union: object) -> str:
    rows = []
    for fact in fact_classes(union):
        names = dict.fromkeys(public_trigger(trigger) for trigger in triggers_of(fact))
        fields = ", ".join(code(field.name) for field in msgspec.structs.fields(fact))
        text = " ".join((inspect.getdoc(fact) or "").split())
        rows.append([", ".join(code(name) for name in names), code(fact.__name__), text, fields])
    return table(["trigger", "class", "what happened", "fields"], rows)


BLOCKS: dict[str, Block] = {
    "events-request": lambda: _table_of(events.RequestFact),
    "events-ticket": lambda: _table_of(events.TicketFact),
    "events-run": lambda: _table_of(events.RunFact),
}
