"""The declarations, the `transitions` machines built from them, and the compiled table agree."""

from itertools import product

import pytest
from transitions import Machine, MachineError

from rlt_fsm import machines, moves
from rlt_fsm.errors import IllegalTransition
from rlt_fsm.machines import JOINT, MACHINES, REQUEST_MACHINES, MachineSpec


class Model:
    """What a reference machine moves."""

    state: str


def reference(spec: MachineSpec) -> tuple[Machine, Model]:
    model = Model()
    machine = Machine(
        model,
        states=spec["states"],
        initial=spec["initial"],
        transitions=spec["transitions"],
        auto_transitions=False,
    )
    return machine, model


def fire_reference(machine: Machine, model: Model, trigger: str, source: str) -> str | None:
    """The destination by the real library, None where it refuses."""
    if trigger not in machine.events:
        return None
    machine.set_state(source, model)
    try:
        machine.events[trigger].trigger(model)
    except MachineError:
        return None
    return model.state


@pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec["name"])
def test_every_declared_state_and_edge_is_known_and_no_pair_has_two_destinations(
    spec: MachineSpec,
) -> None:
    pairs = [(t["trigger"], t["source"]) for t in spec["transitions"]]
    assert len(pairs) == len(set(pairs))
    for transition in spec["transitions"]:
        assert transition["source"] in spec["states"]
        assert transition["dest"] in spec["states"]


@pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec["name"])
def test_every_state_can_be_reached_from_the_initial_one(spec: MachineSpec) -> None:
    reached = {spec["initial"]}
    while True:
        more = {t["dest"] for t in spec["transitions"] if t["source"] in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(spec["states"])


@pytest.mark.parametrize("index", range(len(REQUEST_MACHINES)))
def test_the_compiled_table_agrees_with_the_transitions_library_on_every_pair(index: int) -> None:
    """For every trigger and every joint state, the machine moves as `transitions` says it does."""
    spec = REQUEST_MACHINES[index]
    machine, model = reference(spec)
    by_reference = {
        (trigger, state): fire_reference(machine, model, trigger, state)
        for trigger in JOINT
        for state in spec["states"]
    }
    all_states = list(product(*(m["states"] for m in REQUEST_MACHINES)))
    for trigger in JOINT:
        stays = JOINT[trigger].get(spec["name"])
        for joint, states in enumerate(all_states):
            number = moves.TABLE[moves.TRIGGER_BASE[trigger] + joint]
            source = states[index]
            expected = by_reference[trigger, source]
            if number < 0:
                continue
            edge = moves.MOVES[number][1 + index]
            if stays is None:
                assert edge is None
            elif expected is None:
                assert edge is None
                assert source in stays
            else:
                assert edge == (source, expected)


def test_a_pair_is_legal_exactly_where_each_fired_machine_moves_or_may_stay() -> None:
    references = {spec["name"]: reference(spec) for spec in REQUEST_MACHINES}
    all_states = list(product(*(m["states"] for m in REQUEST_MACHINES)))
    for trigger, fired in JOINT.items():
        allowed = {
            name: {
                state
                for state in references[name][0].states
                if state in stays or fire_reference(*references[name], trigger, state) is not None
            }
            for name, stays in fired.items()
        }
        for joint, states in enumerate(all_states):
            by_name = dict(zip((m["name"] for m in REQUEST_MACHINES), states, strict=True))
            legal = all(by_name[name] in states_ for name, states_ in allowed.items())
            assert (moves.TABLE[moves.TRIGGER_BASE[trigger] + joint] >= 0) == legal


def test_a_move_leads_to_the_joint_state_that_its_edges_name() -> None:
    for number, move in enumerate(moves.MOVES):
        if move.trigger not in JOINT:
            continue
        for joint in range(moves.JOINT_STATES):
            if moves.TABLE[moves.TRIGGER_BASE[move.trigger] + joint] != number:
                continue
            after = joint + moves.CHANGE[number]
            texts = (moves.STATUS_OF, moves.WORK_OF, moves.SLOT_OF, moves.KV_OF)
            for edge, text in zip(move[1:], texts, strict=True):
                assert (text[joint], text[after]) == (edge or (text[joint], text[joint]))


def test_an_illegal_pair_raises_and_names_trigger_and_states() -> None:
    joint = moves.encode("WAITING", "IDLE", "FREE", "NONE")
    with pytest.raises(IllegalTransition, match="select is not declared from status=WAITING"):
        moves.fire(joint, "select")


def test_the_ticket_machine_is_the_librarys_too() -> None:
    machine, model = reference(machines.TICKET)
    for trigger in machines.TICKET_TRIGGERS:
        for state in machines.TICKET["states"]:
            declared = [
                t["dest"]
                for t in machines.TICKET["transitions"]
                if (t["trigger"], t["source"]) == (trigger, state)
            ]
            assert fire_reference(machine, model, trigger, state) == (declared or [None])[0]


CONTRACT_ROWS = {
    "submit": "status",
    "submit_remote": "status kv",
    "reserve": "status kv",
    "admit": "status work slot kv",
    "activate": "status work slot",
    "enqueue": "work",
    "select": "work",
    "grow": "",
    "yield": "status work slot",
    "offload": "status work slot kv",
    "offload_resident": "kv",
    "resume": "status work slot kv",
    "rewind": "status work slot kv",
    "output": "",
    "export": "status work",
    "staged": "slot",
    "transfer_done": "status slot",
    "finish": "status work",
    "abort": "status work",
    "retire": "status slot kv",
}


def test_the_joint_table_fires_the_machines_that_the_contract_names() -> None:
    declared = {machines.public_trigger(t): " ".join(fired) for t, fired in JOINT.items()}
    assert {t: declared[t] for t in CONTRACT_ROWS} == CONTRACT_ROWS
