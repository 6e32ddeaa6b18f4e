"""`Metrics` as Prometheus sees them. Needs `pip install 'rlt-fsm[prometheus]'`; nothing imports it.

from prometheus_client import REGISTRY, start_http_server
REGISTRY.register(Collector(metrics))
start_http_server(9100)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from .errors import RltError

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector as Base
except ImportError as error:
    raise RltError(
        "rlt_fsm.prometheus needs prometheus_client, which is not installed: "
        "pip install 'rlt-fsm[prometheus]'"
    ) from error

from .metrics import Histogram, Metrics, Snapshot

# Gauges and plain counters: the field of a snapshot (and of the exposition), what it tells.
_GAUGES = {
    "requests_live": "Requests that were submitted and have not finished.",
    "tickets_in_flight": "Batches that were submitted and are not retired.",
    "waiting": "Requests that wait to be admitted.",
    "slots_held": "Execution slots that are held.",
    "blocks_free": "KV blocks that nobody holds.",
    "blocks_prefix_only": "KV blocks that only the prefix cache holds.",
    "host_blocks": "KV blocks of offloaded requests, on the host.",
}
_COUNTERS = {
    "events": "Events recorded.",
    "steps": "Steps that ended with events.",
    "requests_submitted": "Requests accepted.",
    "batches_failed": "Batches that the device failed.",
    "results_dropped": "Late or surplus results that changed nothing.",
}
# Counters with one label.
_LABELLED = {
    "requests_finished": ("reason", "Requests that ended, by finish reason."),
    "requests_refused": ("code", "Requests turned away at the door, by reason."),
    "batches": ("operation", "Batches submitted, by model call."),
    "batch_rows": ("operation", "Rows in them."),
    "batch_tokens": ("operation", "Tokens in them."),
    "preemptions": ("kind", "Preemptions, by kind."),
}
_SECONDS = {
    "seconds_to_first_output": ("time_to_first_output", "From arrival to first output."),
    "seconds_between_outputs": ("time_between_outputs", "Between two outputs of a request."),
    "seconds_to_finish": ("request_duration", "From arrival to end."),
    "batch_seconds": ("batch_duration", "From a batch's submission to its completion."),
}


class Collector(Base):
    """Gives a snapshot of `metrics` whenever Prometheus asks.

    Args:
        metrics: what is shown.
        refresh: called before each look, e.g. to read a log that another process writes.
        prefix: what every name begins with.
    """

    def __init__(
        self,
        metrics: Metrics,
        refresh: Callable[[], None] = lambda: None,
        *,
        prefix: str = "rlt_fsm",
    ) -> None:
        self._metrics = metrics
        self._refresh = refresh
        self._prefix = prefix

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering costs no look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every metric as it stands now."""
        self._refresh()
        now = self._metrics.snapshot()
        for field, text in _GAUGES.items():
            yield GaugeMetricFamily(f"{self._prefix}_{field}", text, value=getattr(now, field))
        for field, text in _COUNTERS.items():
            yield CounterMetricFamily(f"{self._prefix}_{field}", text, value=getattr(now, field))
        for field, (label, text) in _LABELLED.items():
            yield self._labelled(field, label, text, getattr(now, field))
        yield self._depths(now)
        for field, (name, text) in _SECONDS.items():
            yield self._seconds(f"{self._prefix}_{name}_seconds", text, getattr(now, field))

    def _labelled(self, field: str, label: str, text: str, values: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(f"{self._prefix}_{field}", text, labels=[label])
        for value, count in sorted(values.items()):
            family.add_metric([value], count)
        return family

    def _depths(self, now: Snapshot) -> Metric:
        """The outputs as a histogram of their exit depths: one bucket for each depth."""
        depths = now.outputs_by_exit_depth
        bounds = range(1, max(depths, default=0) + 1)
        counts = accumulate(depths.get(depth, 0) for depth in bounds)
        buckets = [(f"{bound}.0", count) for bound, count in zip(bounds, counts, strict=True)]
        total = sum(depth * count for depth, count in depths.items())
        family = HistogramMetricFamily(
            f"{self._prefix}_output_exit_depth", "Loops that outputs ran before they left."
        )
        family.add_metric([], [*buckets, ("+Inf", sum(depths.values()))], total)
        return family

    def _seconds(self, name: str, text: str, histogram: Histogram) -> Metric:
        counts = accumulate(histogram.counts)
        bounds = [*map(str, histogram.bounds), "+Inf"]
        family = HistogramMetricFamily(name, text)
        family.add_metric([], list(zip(bounds, counts, strict=True)), histogram.total)
        return family
