"""What an audit says: `Finding`, and the collector that keeps it short and in order.

Nothing here knows an invariant or reads a log.
"""

from operator import itemgetter

import msgspec

Evidence = dict[str, object]
MAX_FINDINGS = 100  # listed for each run; what goes beyond is counted


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule, at one place of one run.

    `request_id` is None where no single request is meant; the generation is in `evidence`, with the
    numbers of the message and the seqs of related events.
    """

    invariant: str
    seq: int
    step: int
    request_id: str | None
    message: str
    evidence: Evidence


# Of the findings at one seq the most specific comes first. A rule that names what is wrong with a
# row, a result or an id says more than "the source is not the current state", which in turn says
# more than what then fails because the event is out of place. A move that the table does not have
# comes after the rule between the machines that it breaks. The drain, which sums up, comes last.
SPECIFICITY = (
    "S13.row",  # a gap, a falling step, an unreadable row: nothing after it can be trusted
    "D2.twice",
    "S6",
    "S12",
    "S10",
    "S1.source",
    "S3",
    "S4",
    "S5",
    "S1.table",
    "S2",
    "S8",
    "S7",
    "S9",
    "S11",
    "F1",
    "F3",
    "F2",
    "F4",
    "S13",
    "L3",
    "L1",
    "L2",
    "D1",
    "D2",
)
_PLACE = itemgetter(0, 1, 2)
_RANK = {name: rank for rank, name in enumerate(SPECIFICITY)}


class Findings:
    """The findings of one run: the first for each (invariant, request), the rest as counts."""

    def __init__(self) -> None:
        self._listed: list[tuple[int, int, int, Finding]] = []
        self._seen: set[tuple[str, str | None, object]] = set()
        self._told = 0
        self.counts: dict[str, int] = {}  # by invariant, listed or not

    def add(self, kind: str, finding: Finding) -> None:
        """Note a broken rule. `kind` is an entry of SPECIFICITY: an invariant, or a part of one."""
        self.counts[finding.invariant] = self.counts.get(finding.invariant, 0) + 1
        key = (finding.invariant, finding.request_id, finding.evidence.get("generation"))
        if key in self._seen or len(self._listed) >= MAX_FINDINGS:
            return
        self._seen.add(key)
        self._listed.append((finding.seq, _RANK[kind], len(self._listed), finding))

    @property
    def total(self) -> int:
        """How often a rule was broken, listed or not."""
        return sum(self.counts.values())

    def new(self) -> list[Finding]:
        """Those that were listed since this was asked last, in order."""
        new, self._told = sorted(self._listed[self._told :], key=_PLACE), len(self._listed)
        return [finding for *_, finding in new]

    def in_order(self) -> list[Finding]:
        """The findings listed, by seq, then by how specific they are."""
        return [finding for *_, finding in sorted(self._listed, key=_PLACE)]
