"""The batches of a run, from the events of their tickets."""

from collections.abc import Callable

from audit.facts import BatchData, decode
from audit.reader import EXTRA, REASON, SEQ, TICKET, Event

from .gathered import NO_NUMBER, Gathered


class Batches:
    """Fills `batches`: a row for each ticket, which its first event makes."""

    def __init__(self, into: Gathered) -> None:
        self._names, self._table = into.names, into.batches
        self._places: dict[int, int] = {}  # ticket → its row

    def number(self, ticket: int, column: int) -> int:
        """The row of a ticket; `column` is where it would first be seen."""
        place = self._places.get(ticket)
        if place is None:
            place = len(self._table["ticket"])
            none = self._names.number("")
            self._table.add(ticket, column, none, none, 0, 0, none, *[NO_NUMBER] * 3)
            self._places[ticket] = place
        return place

    def submitted(self, event: Event, column: int) -> None:
        """What `submit_batch` tells."""
        data = decode(event[EXTRA], BatchData)
        place, names, table = self.number(event[TICKET], column), self._names, self._table
        table["column"][place] = column
        table["operation"][place] = names.number(data.operation)
        table["works"][place] = names.number("+".join(sorted(data.works)))
        table["rows"][place] = data.rows
        table["tokens"][place] = data.tokens
        table["reason"][place] = names.number(event[REASON] or "")
        table["submitted_seq"][place] = event[SEQ]

    def settled(self, name: str) -> Callable[[Event], None]:
        """Puts an event's seq where the column of that name tells it."""

        def put(event: Event) -> None:
            self._table[name][self._places[event[TICKET]]] = event[SEQ]

        return put
