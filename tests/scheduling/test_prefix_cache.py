"""Full prompt pages are computed once, counted once, and given up oldest first."""

from observed import observed

from rlt_fsm.demand import claimed
from rlt_fsm.prefixes import page_keys

CACHE = {"enable_prefix_caching": True}
PROMPT = [11, 12, 13, 14, 15]  # two full pages of two tokens, and the last token


def served(*prompts, **cache):
    """The prompts one after another, as `a`, `b` …; their batches and results."""
    with observed(cache={**CACHE, **cache}) as seen:
        for name, prompt in zip("abcdef", prompts, strict=False):
            seen.add(name, prompt, 3, exit_threshold=0.6)
            seen.drain()
    return seen


def test_a_repeated_prompt_starts_at_its_last_token_with_the_same_outputs():
    seen = served(PROMPT, PROMPT)
    prompts = [batch for batch in seen.batches if batch.startswith("PROMPT")]
    assert prompts == ["PROMPT_ATOMIC a[0:5)", "PROMPT_ATOMIC b[4:5)"]
    assert seen.results["a"].token_ids == seen.results["b"].token_ids
    assert seen.results["a"].exit_depths == seen.results["b"].exit_depths


def test_another_continuation_starts_behind_the_pages_that_agree():
    seen = served(PROMPT, [11, 12, 99, 14, 15], [11, 98, 13, 14, 15])
    prompts = [batch for batch in seen.batches if batch.startswith("PROMPT")]
    assert prompts == ["PROMPT_ATOMIC a[0:5)", "PROMPT_ATOMIC b[2:5)", "PROMPT_ATOMIC c[0:5)"]


def test_the_last_prompt_token_is_always_computed():
    seen = served(PROMPT[:4], PROMPT[:4])
    assert seen.batches[0] == "PROMPT_ATOMIC a[0:4)"
    assert "PROMPT_ATOMIC b[2:4)" in seen.batches


def test_outputs_with_the_cache_are_those_without_it():
    prompts = (PROMPT, PROMPT, [11, 12, 99], [*PROMPT, 16, 17])
    cached = served(*prompts)
    plain = served(*prompts, enable_prefix_caching=False)
    assert cached.results == plain.results
    assert len(cached.events("publish")) > 0 == len(plain.events("publish"))


def test_pages_that_only_the_cache_holds_are_obtainable_until_a_request_shares_them():
    with observed(cache=CACHE, depths=3) as seen:
        pool, pages = seen.engine.state.pool, seen.engine.state.prefixes
        seen.add("a", PROMPT)
        seen.drain()
        held = list(pages.oldest_first())
        assert (pool.prefix_only, claimed(seen.engine.state, held)) == (6, 6)
        seen.add("half", [11, 12, 99], 2)
        seen.step()
        assert (pool.prefix_only, claimed(seen.engine.state, held)) == (3, 3)
        seen.add("whole", PROMPT, 2)
        seen.until("whole", "ACTIVE")
        assert (pool.prefix_only, claimed(seen.engine.state, held)) == (0, 0)
        seen.drain()
        assert (pool.prefix_only, pool.obtainable) == (6, 400)


def test_admission_counts_the_pages_that_it_will_share_as_no_longer_free():
    cache = {**CACHE, "num_blocks": 11, "block_size": 1, "layout": "last_exited"}
    with observed(cache=cache, depths=1) as seen:
        seen.add("first", [1, 2, 3, 4, 5])  # leaves 4 pages to the cache
        seen.drain()
        seen.add("running", [9, 9, 9], 3)  # takes 5 of the 7 free ones
        seen.step()
        assert (seen.free, seen.engine.state.pool.prefix_only) == (2, 4)
        seen.add("long", [1, 2, 3, 4, 6, 7, 8])  # 3 of its own and the 4 cached ones: 7
        seen.step(6)  # until a prompt's turn comes again
        assert seen.waiting == ["long"]
        assert seen.verdicts() == ["long: blocks need=7 free=6"]
        seen.drain()
        assert "PROMPT_ATOMIC long[4:7)" in seen.batches


def test_a_claim_that_cannot_succeed_evicts_nothing_and_one_that_can_evicts_the_oldest():
    cache = {**CACHE, "num_blocks": 10, "block_size": 1}
    with observed(cache=cache, depths=1) as seen:
        seen.add("old", [1, 2, 3])
        seen.drain()
        seen.add("new", [4, 5, 6])
        seen.drain()
        pages = seen.engine.state.prefixes
        assert (len(pages.entries()), seen.free) == (4, 6)
        seen.add("running", [7], 5)  # holds 5
        seen.step()
        seen.add("too long", [8, 8], 5)  # 6 of the 5 that are obtainable
        seen.step(6)  # until a prompt's turn comes again
        assert seen.verdicts() == ["too long: blocks need=6 free=5"]
        assert seen.waiting == ["too long"]
        assert (len(pages.entries()), seen.events("evict")) == (4, [])
        seen.add("fits", [7, 7], 2)  # 3, and 1 is free: two pages go
        seen.until("fits", "ACTIVE")
        assert seen.events("evict") == ["evict fits"]
        seen.drain()
        seen.add("new again", [4, 5, 6])
        seen.drain()
        seen.add("old again", [1, 2, 3])
        seen.drain()
        assert "PROMPT_ATOMIC new again[2:3)" in seen.batches
        assert "PROMPT_ATOMIC old again[0:3)" in seen.batches


def test_a_hit_makes_its_pages_the_newest_and_leaves_go_before_their_parents():
    cache = {**CACHE, "num_blocks": 8, "block_size": 1}
    with observed(cache=cache, depths=1) as seen:
        for name, prompt in (("a", [1, 2, 3]), ("b", [4, 5, 6]), ("a again", [1, 2, 9])):
            seen.add(name, prompt)
            seen.drain()
        state = seen.engine.state
        a1, a2 = state.prefixes.run(page_keys((1, 2), block_size=1))
        b1, b2 = state.prefixes.run(page_keys((4, 5), block_size=1))
        assert list(state.prefixes.oldest_first()) == [b2, b1, a2, a1]
        seen.add("large", [7, 7, 7], 3)  # 5 of 4 free blocks
        seen.step()  # its own pages join the cache behind the others
        assert list(state.prefixes.oldest_first())[:3] == [b1, a2, a1]
