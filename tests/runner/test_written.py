"""What counts as written: a contiguous prefix per plane, whatever the order of writing."""

from hypothesis import given
from hypothesis import strategies as st

from runner.written import WrittenRecords

A = ("a", 1)


@given(st.permutations(range(8)))
def test_out_of_order_writes_expose_only_the_contiguous_prefix(order):
    records, written = WrittenRecords(2), set()
    for position in order:
        records.extend(A, 1, position, position + 1)
        written.add(position)
        prefix = next(p for p in range(9) if p not in written)
        assert records.frontier(A, 1) == prefix
        assert records.frontier(A, 0) == 0
        assert [records.has(A, 1, p) for p in range(8)] == [p in written for p in range(8)]


def test_writing_a_position_again_changes_nothing():
    records = WrittenRecords(1)
    records.extend(A, 0, 0, 4)
    records.extend(A, 0, 1, 2)
    assert records.frontier(A, 0) == 4


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5))))
def test_one_position_at_a_time_counts_as_a_range_of_one(writes):
    short, long = WrittenRecords(4), WrittenRecords(4)
    for first, count, position in writes:
        planes = range(first, min(first + count, 4))
        short.extend_by_one(A, planes, position)
        for plane in planes:
            long.extend(A, plane, position, position + 1)
    for plane in range(4):
        assert [short.has(A, plane, p) for p in range(7)] == [
            long.has(A, plane, p) for p in range(7)
        ]
        assert short.frontier(A, plane) == long.frontier(A, plane)


def test_what_is_taken_is_gone_and_comes_back_as_it_was():
    records = WrittenRecords(2)
    records.extend(A, 0, 0, 3)
    records.extend(A, 1, 2, 4)
    taken = records.take(A)
    assert A not in records
    assert not records.has(A, 1, 3)
    records.put(A, taken)
    assert (records.frontier(A, 0), records.frontier(A, 1)) == (3, 0)
    records.extend(A, 1, 0, 2)
    assert records.frontier(A, 1) == 4
