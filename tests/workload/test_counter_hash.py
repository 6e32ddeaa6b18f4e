from rlt_fsm.counter_hash import draw, key_of


def test_draws_are_splitmix64_and_never_change():
    # The published first numbers of SplitMix64 with seed 0.
    assert [draw(0, i) for i in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_keys_never_change():
    assert key_of("a", 1, (1, 2)) == 0x6079E09F21AC4A7B


def test_parts_of_a_key_do_not_run_into_each_other():
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of((1, 2), (3,)) != key_of((1,), (2, 3))
    assert key_of(1) != key_of((1, 1))
