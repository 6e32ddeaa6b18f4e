"""Workloads run on the sim for whoever judges runs: what a tool that shrinks them is given."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from rlt_fsm.config import override
from rlt_fsm.log import EventLog
from rlt_fsm.log.port import EventStore
from rlt_fsm.record import read_record
from rlt_fsm.recorded_workload import workload_of
from rlt_fsm.workload import parse, to_json

from .simulate_check import Failure, run_logged


class SimRuns:
    """Today's scheduler on the sim."""

    def workload_of(self, store: EventStore, run_id: int) -> str:
        """The text of the workload that a run came from, or of one that gives the sim the same.

        Raises:
            LogError: the run cannot be read.
        """
        return to_json(workload_of(read_record(store, run_id)))

    def on_sim(
        self, settings: Mapping[str, str], *, check: bool
    ) -> Callable[[bytes, EventLog], Failure | None]:
        """What runs a workload's text into a log, under another configuration.

        It raises RltError where the text is no workload, or one that cannot be run.
        """

        def run_into(text: bytes, log: EventLog) -> Failure | None:
            workload = parse(text)
            config = override(workload.config, settings)
            return run_logged(replace(workload, config=config), log, check=check)

        return run_into
