"""However alike or different the rows of a commit are, they come back as they were."""

import math
from random import Random

import pytest
from log_rows import HEADER, move

from rlt_fsm.log.port import EventRow

SOME = [0, 1, -1, 7, 2**40]
VALUES = {
    "ticket": SOME,
    "ref": SOME,
    "blocks": SOME,
    "cause": SOME,
    "reason": ["", "late row=1", "ö"],
    "a": SOME,
    "b": SOME,
    "c": SOME,
    "d": [0, 0.0, -0.0],  # equal, and not the same
    "e": SOME,
    "extra": ["{}", '{"take":[1]}'],
}


def rows_in_runs(random):
    """Rows in runs: in each, every column is NULL, or one value, or now this value and now that."""
    rows, seq = [], 0
    for _ in range(random.randint(1, 4)):
        choices = {name: _choices(random, values) for name, values in VALUES.items()}
        if choices["a"] == [None]:  # no trigger has the later columns without the first
            choices |= {name: [None] for name in "bcde"}
        step = rows[-1].step + random.randint(0, 2) if rows else 0
        for _ in range(random.choice([1, 7, 8, 9, 40, 64, 73, 137])):
            seq += random.choice([1, 1, 1, 5])
            cells = {name: random.choice(values) for name, values in choices.items()}
            rows.append(
                EventRow(seq=seq, step=step, t_ns=seq // 50, move=move("grow"), **cells),
            )
    return rows


def _choices(random, values):
    return random.choice([[None], [random.choice(values)], values])


def told(rows):
    """Values with their types, and zeros with their signs."""
    return [
        [(type(value), math.copysign(1, value) if value == 0 else value) for value in row]
        for row in rows
    ]


@pytest.mark.parametrize("seed", range(40))
def test_rows_come_back_value_for_value_whatever_they_have_in_common(log, seed):
    rows = rows_in_runs(Random(seed))
    writer = log.begin_run(HEADER)
    writer.write(rows)
    writer.commit()
    assert told(log.reader().events(writer.run_id)) == told(rows)


def test_logprobs_and_depths_of_every_kind_come_back(log):
    reals = [0, 3, 0.0, -0.0, 3.0, -2.5, -math.inf] * 20
    rows = [
        EventRow(seq, 0, 1, 5, 2, move("output"), 3, 4, None, 5, 6, 7, real, None, None)
        for seq, real in enumerate(reals, 1)
    ]
    writer = log.begin_run(HEADER)
    writer.write(rows)
    writer.commit()
    assert told(log.reader().events(writer.run_id)) == told(rows)


def test_runs_that_are_written_at_the_same_time_keep_their_own_rows(log):
    first, second = log.begin_run(HEADER), log.begin_run(HEADER)
    of_first, of_second = rows_in_runs(Random(1)), rows_in_runs(Random(2))
    for writer, rows in ((first, of_first), (second, of_second)):
        writer.write(rows)
        writer.commit()
    assert told(log.reader().events(first.run_id)) == told(of_first)
    assert told(log.reader().events(second.run_id)) == told(of_second)
