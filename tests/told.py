"""What the log of a run tells, event by event, for tests that ask what happened."""

from rlt_fsm.log.port import EventRow


def events(log, run=1):
    """(trigger, row) of every committed event, in order."""
    reader = log.reader()
    names = {move.move: move.trigger for move in reader.moves(run)}
    return [(names[cells[5]], EventRow(*cells)) for cells in reader.events(run)]


def triggers(log, run=1):
    """The trigger of every committed event, in order; without its destination."""
    return [trigger for trigger, _ in events(log, run)]
