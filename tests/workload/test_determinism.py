"""Same file, same revision: identical digests, whatever else the process did."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

IDS = st.sampled_from(["a", "b", "c"])
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "id": IDS,
            "at": st.integers(0, 30),
            "prompt_len": st.integers(0, 12),
            "max_tokens": st.integers(0, 6),
            "params": st.fixed_dictionaries(
                {"exit_threshold": st.sampled_from([0.0, 0.5, 1.0]), "seed": st.integers(0, 3)}
            ),
        },
        optional={"eos_at": st.integers(1, 6)},
    ),
    min_size=1,
    max_size=6,
)
ACTIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"at": st.integers(0, 40), "abort": IDS}),
        st.fixed_dictionaries({"at": st.integers(0, 40), "fail": st.just(value=True)}),
        st.fixed_dictionaries(
            {
                "abort": IDS,
                "when": st.fixed_dictionaries(
                    {"request": IDS, "work": st.just("TAKEN:DECODE_CODA"), "nth": st.integers(1, 3)}
                ),
            }
        ),
    ),
    max_size=3,
)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(requests=REQUESTS, actions=ACTIONS, seed=st.integers(0, 9))
def test_the_same_file_gives_the_same_digest(run_workload, requests, actions, seed):
    file = {"requests": requests, "actions": actions, "seed": seed, "max_model_len": 32}
    once, again = run_workload(**file), run_workload(**file)
    assert once.digest == again.digest
    assert once.lines == again.lines
    assert once.result == again.result
    assert not once.result.cut_off


def test_another_seed_gives_another_digest(run_workload):
    assert run_workload(seed=0).digest != run_workload(seed=1).digest


def test_names_and_notes_do_not_change_the_digest(run_workload):
    assert run_workload(name="x", about="y", note="z").digest == run_workload().digest
