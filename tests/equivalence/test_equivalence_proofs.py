"""The judge itself: it proves real near-ties, and nothing else gets past it."""

import pytest
import torch
from equivalence.comparison import compare_set
from equivalence.exact import Exact, ExactModel, Roundings
from equivalence.proofs import Prover, Unproven
from equivalence.request_sets import Wanted
from equivalence.serving import Completion, serve
from equivalence.ways import ways
from reference import dense_ouro

from rlt_fsm import SamplingParams
from runner import sampler
from runner.demo.tokenizer import ByteTokenizer
from runner.kv_cache import KVCache
from runner.loading import LoadedModel
from runner.models.ouro import OuroModel

PROMPT = tuple(ByteTokenizer().encode("403+219="))
WAYS = ways("last_exited")
PLAINEST = WAYS[0]


def wanted(**params):
    return Wanted("r", PROMPT, SamplingParams(**{"ignore_eos": True, "logprobs": 0, **params}), 0)


def served(loaded, request):
    return serve(loaded, [request], PLAINEST).completions["r"]


def completion(tokens, depths):
    return Completion(tuple(tokens), tuple(depths), (), "length")


def exact_outputs(loaded, tokens, depths, roundings=None):
    weights, roundings = loaded.model.state_dict(), roundings or Exact()
    model = ExactModel(weights, loaded.config, "last_exited", roundings)
    return list(model.outputs(PROMPT, tokens, depths))


def dense_config(loaded):
    return {name: getattr(loaded.config, name) for name in loaded.config.__struct_fields__}


# ---- the exact model and its bounds ----------------------------------------------------------


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_the_exact_model_agrees_with_the_dense_reference(demo, layout):
    weights, depths = demo.model.state_dict(), (4, 1, 3, 2)
    made = dense_ouro.generate(
        weights, dense_config(demo), PROMPT, depths, layout, max_tokens=len(depths)
    )
    exact = ExactModel(weights, demo.config, layout, Exact())
    outputs = list(exact.outputs(PROMPT, made.tokens, depths))
    for output, logits, gates in zip(outputs, made.logits, made.gates, strict=True):
        assert torch.allclose(output.logits.float(), logits, atol=1e-3)
        hazards = torch.sigmoid(torch.tensor(gates, dtype=torch.float64))
        expected = 1 - torch.cumprod(1 - hazards, dim=0)
        assert torch.allclose(torch.stack(output.exited_mass), expected, atol=1e-5)


def test_fp32_stays_within_its_bound_and_the_bound_is_small(demo):
    depths = (4, 1, 3, 2)
    made = dense_ouro.generate(
        demo.model.state_dict(), dense_config(demo), PROMPT, depths, max_tokens=len(depths)
    )
    roundings = Roundings()
    outputs = exact_outputs(demo, made.tokens, depths, roundings)
    for output, logits in zip(outputs, made.logits, strict=True):
        scale = float(output.logits.detach().abs().max())
        for token in (made.tokens[0], 50, 200):
            bound = roundings.bound(output.logits[token])
            assert abs(float(logits[token]) - output.logits[token].item()) <= bound
            assert bound <= 1e-3 * scale
        for mass in output.exited_mass:
            assert 0 < roundings.bound(mass) <= 1e-3


# ---- what is proven --------------------------------------------------------------------------


def an_exit_either_way(demo, offset):
    """A threshold `offset` above the exact mass after output 1's first loop: what it gets when it
    stays until loop 2, as is right, and when it leaves at once.
    """
    first = served(demo, wanted(max_tokens=1)).tokens
    staying, leaving = (exact_outputs(demo, (*first, 0), (4, depth))[1] for depth in (2, 1))
    threshold = float(leaving.exited_mass[0]) + offset
    assert 0.1 < threshold < float(staying.exited_mass[1])
    request = wanted(max_tokens=2, min_loops=1, exit_threshold=threshold)
    right, other = (
        completion((*first, int(output.logits.argmax())), (4, len(output.exited_mass)))
        for output in (staying, leaving)
    )
    return request, right, other


def test_a_gate_at_its_threshold_may_go_either_way(demo):
    request, right, other = an_exit_either_way(demo, 1e-9)
    (near_tie,) = Prover(demo, "last_exited").prove(request, right, other)
    assert near_tie.what == "left after loop 1"
    assert 0 < near_tie.margin <= near_tie.bound < 1e-3
    assert served(demo, request).depths in {right.depths, other.depths}


def test_a_gate_away_from_its_threshold_may_not(demo):
    request, right, other = an_exit_either_way(demo, 0.01)
    assert served(demo, request).depths == right.depths
    with pytest.raises(Unproven, match="exit depth 1 of output 1 is no near-tie"):
        Prover(demo, "last_exited").prove(request, right, other)


@pytest.mark.parametrize("filters", [{}, {"top_k": 5}, {"top_p": 0.95}])
def test_a_draw_on_a_boundary_may_go_either_way_and_to_no_third_token(demo, filters):
    logits = exact_outputs(demo, [0], [4])[0].logits[None]

    def token_at(temperature, seed):
        params = SamplingParams(temperature=temperature, seed=seed, **filters)
        return sampler.sample(logits, [sampler.Draw(params, 0)]).token_ids[0]

    cold, hot = 0.5, 16.0
    seed = next(seed for seed in range(99) if token_at(cold, seed) != token_at(hot, seed))
    for _ in range(40):
        middle = (cold + hot) / 2
        is_cold = token_at(middle, seed) == token_at(cold, seed)
        cold, hot = (middle, hot) if is_cold else (cold, middle)
    one, other = token_at(cold, seed), token_at(hot, seed)
    request = wanted(max_tokens=1, temperature=hot, seed=seed, **filters)
    prover = Prover(demo, "last_exited")
    found = prover.prove(request, completion([one], [4]), completion([other], [4]))
    assert {near_tie.index for near_tie in found} == {0}
    assert all(near_tie.margin <= near_tie.bound < 1e-2 for near_tie in found)
    third = next(token for token in range(257) if token not in {one, other})
    with pytest.raises(Unproven):
        prover.prove(request, completion([one], [4]), completion([third], [4]))


def twins(demo, difference):
    """The demo with the row of its best first token copied to token 200, off by a little."""
    best = served(demo, wanted(max_tokens=1)).tokens[0]
    model = OuroModel(demo.config).requires_grad_(requires_grad=False).eval()
    model.load_state_dict(demo.model.state_dict())
    model.lm_head.weight[200] = model.lm_head.weight[best] * (1 - difference)
    return LoadedModel("twins", demo.config, model), best


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.01, "top_k": 3}])
def test_two_tokens_of_the_same_logit_may_be_taken_for_each_other(demo, sampling):
    loaded, best = twins(demo, 1e-8)
    prover = Prover(loaded, "last_exited")
    one, other = completion([best], [4]), completion([200], [4])
    found = prover.prove(wanted(max_tokens=1, **sampling), one, other)
    assert found[-1].what in {"greedy", "order", "draw"}


def test_two_tokens_of_different_logits_may_not(demo):
    loaded, best = twins(demo, 1e-2)
    prover = Prover(loaded, "last_exited")
    with pytest.raises(Unproven, match="token 200 of output 0"):
        prover.prove(wanted(max_tokens=1), completion([best], [4]), completion([200], [4]))


def test_a_wrong_token_after_a_near_tie_is_still_wrong(demo):
    request, right, other = an_exit_either_way(demo, 1e-9)
    longer = request._replace(
        params=SamplingParams(
            max_tokens=3, min_loops=1, ignore_eos=True, exit_threshold=request.params.exit_threshold
        )
    )
    one = completion((*right.tokens, 7), (*right.depths, 2))
    two = completion((*other.tokens, 7), (*other.depths, 2))
    with pytest.raises(Unproven, match="of output 2 is no near-tie"):
        Prover(demo, "last_exited").prove(longer, one, two)


def test_the_same_outputs_that_end_differently_are_no_near_tie(demo):
    request = wanted(max_tokens=3)
    whole = served(demo, request)
    short = Completion(whole.tokens[:2], whole.depths[:2], whole.logprobs[:2], "length")
    with pytest.raises(Unproven, match="end differently"):
        Prover(demo, "last_exited").prove(request, whole, short)
    with pytest.raises(Unproven, match="ends after 2"):
        Prover(demo, "last_exited").near_ties(request, short)


# ---- what is caught --------------------------------------------------------------------------


def lose_reloaded_values(monkeypatch):
    whole = KVCache.reload

    def reload(self, owner, table, pages):
        whole(self, owner, table, pages._replace(values=torch.zeros_like(pages.values)))

    monkeypatch.setattr(KVCache, "reload", reload)


def fill_exits_with_the_first_loop(monkeypatch):
    whole = KVCache.fill_exits

    def fill_exits(self, tokens):
        whole(self, tokens)
        for token in tokens:
            page, offset = divmod(token.position, self.geometry.block_size)
            first = token.table[0][page]
            for plane in token.table[token.exit_depth :]:
                self.keys[plane[page], :, offset] = self.keys[first, :, offset]

    monkeypatch.setattr(KVCache, "fill_exits", fill_exits)


def draw_by_place_in_the_batch(monkeypatch):
    draws, whole = [], sampler.uniform

    def uniform(seed, output_idx):
        draws.append(seed)
        return whole(seed + len(draws) % 2, output_idx)

    monkeypatch.setattr(sampler, "uniform", uniform)


@pytest.mark.parametrize(
    ("fault", "pool"),
    [
        (lose_reloaded_values, "offloads"),
        (fill_exits_with_the_first_loop, "rewinds"),
        (draw_by_place_in_the_batch, "roomy"),
    ],
)
def test_a_runner_that_is_wrong_is_found_out(demo, monkeypatch, fault, pool):
    way = next(way for way in WAYS if way.pool == pool and way.company == "together")
    fault(monkeypatch)
    with pytest.raises(Unproven):
        compare_set(demo, 0, "last_exited", [PLAINEST, way])
