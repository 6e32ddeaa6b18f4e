"""Whatever is scheduled how: SimRunner's KV checks hold, and every request gets its own outputs."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MAX_MODEL_LEN = 24
DEPTHS = 3


@st.composite
def configs(draw):
    """A configuration that this version runs, with a pool that one longest request fits in."""
    is_split = draw(st.booleans())
    modes = ["refill", "no_refill", "mixed"] if is_split else ["refill", "no_refill"]
    layout = draw(st.sampled_from(["last_exited", "shared"]))
    block_size = draw(st.sampled_from([1, 2, 4]))
    pages = MAX_MODEL_LEN // block_size * (1 if layout == "shared" else DEPTHS)
    return {
        "scheduler": {
            "mode": draw(st.sampled_from(modes)),
            "policy": draw(st.sampled_from(["fcfs", "priority"])),
            "enable_preemption": draw(st.booleans()),
            "max_num_seqs": draw(st.integers(1, 4)),
            "max_num_batched_tokens": draw(st.sampled_from([2, 5, 32])),
            "prefill_chunk_size": draw(st.sampled_from([2, 8])),
            "max_admission_bypasses": draw(st.sampled_from([1, 4])),
            "min_coda_batch_size": draw(st.integers(1, 2)),
        },
        "cache": {
            "layout": layout,
            "block_size": block_size,
            "num_blocks": pages + draw(st.integers(0, pages)),
            "incremental_allocation": draw(st.booleans()),
            "enable_prefix_caching": layout == "last_exited" and draw(st.booleans()),
            "watermark_ratio": draw(st.sampled_from([0.0, 0.2])),
            "host_snapshot_blocks": draw(st.sampled_from([None, 0, pages // 2])),
        },
        "execution": {"atomic_prefill": not is_split},
    }


REQUEST = st.fixed_dictionaries(
    {
        "at": st.integers(0, 25),
        "prompt_len": st.integers(1, 12),
        "max_tokens": st.integers(1, 8),
        "priority": st.integers(0, 2),
        "params": st.fixed_dictionaries(
            {"exit_threshold": st.sampled_from([0.0, 0.5, 1.0]), "seed": st.integers(0, 2)}
        ),
    }
)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=configs(), requests=st.lists(REQUEST, min_size=1, max_size=7), is_alike=st.booleans())
def test_every_schedule_gives_every_request_the_outputs_it_gets_alone(
    run_workload, config, requests, is_alike
):
    requests = [request | {"id": f"r{i}"} for i, request in enumerate(requests)]
    if is_alike:  # prompts that begin alike, so that the prefix cache has something to share
        first = requests[0]["prompt_len"]
        for request in requests[1:]:
            shared = min(first, request["prompt_len"])
            request |= {"prompt_like": "r0", "shared_len": shared}
    model = {"depths": DEPTHS, "max_model_len": MAX_MODEL_LEN}
    together = run_workload(requests=requests, config=config, **model)
    alone = run_workload(requests=requests, config={"scheduler": {"max_num_seqs": 1}}, **model)
    assert not together.result.cut_off
    by_label = {request.label: request for request in alone.result.requests}
    for request in together.result.requests:
        assert request == by_label[request.label]
