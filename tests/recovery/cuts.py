"""Logs that end too early: the first events of a run, as a crash could have left them."""

from rlt_fsm import EventLog
from rlt_fsm.log.port import RunHeader


def first_events(log: EventLog, count: int, into: EventLog | None = None) -> EventLog:
    """The log of run 1 had it broken off after `count` events; in memory unless given."""
    reader = log.reader()
    info = reader.runs()[0]
    header = RunHeader(*(getattr(info, name) for name in RunHeader._fields))
    events = [event for event in reader.events(1) if event[0] <= count]
    named = {event[4] for event in events}
    cut = EventLog.memory() if into is None else into
    writer = cut.begin_run(header)
    writer.write(
        events,
        [row for row in reader.requests(1) if row[0] in named],
        [step for step in reader.steps(1) if step.last_seq <= count],
    )
    writer.commit()
    return cut
