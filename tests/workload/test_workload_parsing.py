import json

import pytest

from rlt_fsm import SamplingParams, WorkloadError
from rlt_fsm.workload import Expect, load, needs, parse, split_label, to_json

REQUEST = {"id": "a", "prompt_len": 3}


def test_the_contracts_example_is_understood():
    workload = parse(
        """{"format": "rlt-workload/1", "name": "two-slots", "about": "one line", "seed": 0,
        "model": "sim", "depths": 4, "vocab_size": 512, "max_model_len": 512,
        "config": {"scheduler": {"max_num_seqs": 2}, "cache": {"num_blocks": 40, "block_size": 2},
                   "execution": {}},
        "requests": [{"id": "a", "at": 0, "prompt_len": 5, "max_tokens": 4, "priority": 0,
                      "exit_depths": [4, 2, 2, 3], "eos_at": null},
                     {"id": "b", "at": 3, "prompt": [1, 2, 3], "max_tokens": 2,
                      "params": {"exit_threshold": 0.6}}],
        "actions": [{"at": 6, "abort": "a"}, {"abort": "b", "when":
                     {"request": "b", "work": "TAKEN:DECODE_CODA", "nth": 1}}],
        "expect": {"finish": {"b": "length"}, "abort": ["a"], "refuse": [], "outputs": {"b": 2},
                   "max_steps": 200, "max_preemptions": 4}}"""
    )
    assert workload.config.cache.num_blocks == 40
    first, second = workload.requests
    assert first.params == SamplingParams(max_tokens=4, exit_depths=(4, 2, 2, 3))
    assert second.params == SamplingParams(max_tokens=2, exit_threshold=0.6)
    assert workload.expect == Expect(
        finish={"b": "length"}, abort=("a",), outputs={"b": 2}, max_steps=200, max_preemptions=4
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"requets": []}, "top level: unknown key 'requets'"),
        ({"requests": [REQUEST | {"promt": 1}]}, "requests[0]: unknown key 'promt'"),
        (
            {"requests": [REQUEST | {"params": {"max_token": 1}}]},
            "requests[0].params: unknown key 'max_token'",
        ),
        ({"config": {"cache": {"pages": 1}}}, "unknown key 'pages'; known: block_size"),
        (
            {"config": {"scheduler": {"mode": "mixd"}}},
            "config.scheduler.mode='mixd': expected one of 'mixed', 'no_refill', 'refill'",
        ),
        ({"config": {"exit": {"mode": 1}}}, "config.exit.mode=1: expected 'str | null', got 'int'"),
        ({"actions": [{"at": 1, "kill": "a"}]}, "actions[0]: unknown key 'kill'"),
        ({"expect": {"finnish": {}}}, "expect: unknown key 'finnish'"),
        ({"requests": [{"prompt_len": 1}]}, "requests[0]: missing key 'id'"),
        ({"requests": [{"id": "a"}]}, "requests[0]: give exactly one of 'prompt' and 'prompt_len'"),
        (
            {"requests": [REQUEST | {"prompt": [1]}]},
            "requests[0]: give exactly one of 'prompt' and 'prompt_len'",
        ),
        ({"requests": [{"id": "a", "prompt_len": -1}]}, "requests[0].prompt_len=-1: expected"),
        ({"requests": [{"id": "a", "prompt": ["x"]}]}, "requests[0].prompt[0]='x': expected 'int'"),
        ({"requests": [REQUEST | {"at": -1}]}, "requests[0].at=-1: expected"),
        ({"requests": [REQUEST | {"at": True}]}, "requests[0].at=True: expected 'int', got 'bool'"),
        ({"requests": [REQUEST | {"id": "a#2"}]}, "id 'a#2' reads as a generation of 'a'"),
        (
            {"requests": [REQUEST | {"max_tokens": 3, "params": {"max_tokens": 4}}]},
            "requests[0]: 'max_tokens' is 3 here and 4 in params",
        ),
        (
            {"requests": [REQUEST | {"prompt_like": "a"}]},
            "requests[0]: 'prompt_like' and 'shared_len' go together",
        ),
        (
            {"requests": [REQUEST | {"prompt_like": "z", "shared_len": 1}]},
            "prompt_like 'z' is no request of this file",
        ),
        (
            {"requests": [REQUEST | {"prompt_like": "a", "shared_len": 4}]},
            "shared_len 4 is more than prompt_len 3",
        ),
        (
            {"requests": [REQUEST | {"eos_at": 2, "stop_at": 2}]},
            "output 2 cannot be both EOS and a stop token",
        ),
        ({"actions": [{"abort": "a"}]}, "actions[0]: give exactly one of 'at' and 'when'"),
        ({"actions": [{"at": 1}]}, "actions[0]: name exactly one of abort, fail, crash"),
        ({"actions": [{"at": 1, "abort": "a", "fail": True}]}, "actions[0]: name exactly one of"),
        (
            {"actions": [{"abort": "a", "when": {"request": "a"}}]},
            "actions[0]: 'when' names exactly one of status, work, slot, kv",
        ),
        (
            {"actions": [{"abort": "a", "when": {"request": "a", "kv": "GONE"}}]},
            "actions[0]: when.kv 'GONE' is not one of NONE, RESIDENT, OFFLOADED",
        ),
        ({"expect": {"finish": {"a": "lenght"}}}, "'lenght': expected one of 'stop', 'length'"),
        ({"requests": [REQUEST | {"params": {"seed": None}}]}, "requests[0]: params.seed is null"),
        (
            {"requests": [REQUEST | {"at": 2**70}]},
            "requests[0].at=1180591620717411303424: expected",
        ),
        (
            {"requests": [REQUEST | {"prompt_len": 10**9}]},
            "prompt_len=1000000000: expected 'int' <=",
        ),
        ({"depths": 10**9}, "depths=1000000000: expected 'int' <= 1024"),
        ({"vocab_size": 2**63}, "vocab_size=9223372036854775808: expected 'int' <="),
        ({"max_model_len": 2**70}, "max_model_len=1180591620717411303424: expected 'int' <="),
        ({"vocab_size": 1}, "vocab_size=1: expected 'int' >= 2"),
        ({"format": "rlt-workload/2"}, "format is 'rlt-workload/2', this version reads"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_file_place_and_key(workload_text, change, sentence):
    with pytest.raises(WorkloadError) as caught:
        parse(workload_text(**change), name="w.json")
    message = str(caught.value)
    assert message.startswith("w.json: ")
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": 1}', b"\xff\xfe"])
def test_what_is_no_workload_is_refused(text):
    with pytest.raises(WorkloadError):
        parse(text)


def test_a_key_that_is_given_twice_is_refused_and_not_the_last_one_taken(workload_text):
    twice = workload_text().replace('"max_num_seqs": 2', '"max_num_seqs": 2, "max_num_seqs": 3')
    with pytest.raises(WorkloadError, match="key 'max_num_seqs' is given twice in one object"):
        parse(twice)


@pytest.mark.parametrize(
    "nested",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"format": "rlt-workload/1", "requests": ' + "[" * 900 + "]" * 900 + "}",
    ],
)
def test_a_text_nested_too_deeply_is_refused_in_one_sentence(nested):
    with pytest.raises(WorkloadError, match="nested too deeply"):
        parse(nested, name="w.json")


def test_a_byte_order_mark_before_the_text_is_no_mistake(workload_text, tmp_path):
    path = tmp_path / "w.json"
    path.write_text(workload_text(), encoding="utf-8-sig")
    assert load(path) == parse(workload_text())


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(WorkloadError, match=r"none\.json: No such file or directory"):
        load(tmp_path / "none.json")


def test_a_note_is_allowed_on_any_object_and_changes_nothing(workload_text):
    plain = json.loads(workload_text(actions=[{"at": 1, "abort": "a"}]))
    noted = json.loads(json.dumps(plain))
    for thing in (
        noted,
        noted["config"],
        noted["config"]["cache"],
        noted["requests"][0],
        noted["actions"][0],
    ):
        thing["note"] = "for people"
    assert parse(json.dumps(noted)) == parse(json.dumps(plain))


def test_a_request_may_be_called_note(workload_text):
    text = workload_text(
        requests=[{"id": "note", "prompt_len": 3}],
        expect={"finish": {"note": "length"}, "outputs": {"note": 16}},
    )
    assert parse(text).expect.finish == {"note": "length"}


def test_eos_at_makes_eos_count(workload_text):
    request = REQUEST | {"eos_at": 2, "params": {"ignore_eos": True}}
    assert not parse(workload_text(requests=[request])).requests[0].params.ignore_eos


def test_stop_at_without_stop_ids_takes_the_last_token_of_the_vocabulary(workload_text):
    text = workload_text(requests=[REQUEST | {"stop_at": 2}], vocab_size=100)
    assert parse(text).requests[0].params.stop_token_ids == (99,)


def test_a_workload_written_and_read_again_is_the_same(workload_text):
    text = workload_text(
        seed=3,
        requests=[
            REQUEST | {"max_tokens": 4, "exit_depths": [4, 2, 2, 2], "stop_at": 3, "at": 2},
            {"id": "b", "prompt": [1], "params": {"temperature": 0.5, "stop_token_ids": [7]}},
            {"id": "a", "prompt_len": 6, "prompt_like": "b", "shared_len": 1, "eos_at": 1},
        ],
        actions=[{"abort": "a#2", "when": {"request": "a#2", "work": "TAKEN:DECODE_CODA"}}],
        completion={"order": "random", "max_delay": 2},
        expect={"finish": {"b": "length"}, "max_preemptions": 0, "notes": ["one"]},
    )
    workload = parse(text)
    assert parse(to_json(workload)) == workload
    assert to_json(parse(to_json(workload))) == to_json(workload)


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"config": {"execution": {"async_scheduling": True}}}, "async"),
        ({"config": {"execution": {"atomic_prefill": False}}}, "split"),
        ({"config": {"scheduler": {"policy": "priority"}}}, "priority"),
        ({"config": {"scheduler": {"enable_preemption": True}}}, "preemption"),
        ({"config": {"scheduler": {"mode": "mixed"}}}, "mixed"),
        ({"config": {"scheduler": {"mode": "no_refill"}}}, "no_refill"),
        ({"config": {"cache": {"enable_prefix_caching": True}}}, "prefix"),
        ({"config": {"cache": {"incremental_allocation": True}}}, "incremental"),
        ({"config": {"speculative": {"num_speculative_tokens": 2}}}, "speculative"),
        ({"actions": [{"at": 1, "crash": True}]}, "crash"),
        ({"actions": [{"at": 1, "receive_done": "a"}]}, "pd"),
        ({"actions": [{"at": 1, "peer_lost": True}]}, "pd"),
        ({"requests": [REQUEST | {"remote": True}]}, "pd"),
        ({"requests": [REQUEST | {"export": True}]}, "pd"),
    ],
)
def test_a_workload_tells_which_feature_it_needs(workload_text, change, feature):
    assert needs(parse(workload_text(**change))) == {feature}


def test_a_plain_workload_needs_nothing(workload_text):
    assert needs(parse(workload_text())) == set()


def test_labels_name_generations():
    assert split_label("a") == split_label("a#1") == ("a", 1)
    assert split_label("a#12") == ("a", 12)
    assert split_label("a#0") == ("a#0", 1)
    assert split_label("x#y") == ("x#y", 1)
