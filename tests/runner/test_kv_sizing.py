"""How large the KV pool becomes, and what is said when it cannot be large enough."""

import pytest
import torch

from rlt_fsm.config import CacheConfig
from rlt_fsm.errors import ConfigError
from runner import kv_sizing
from runner.kv_cache import KVGeometry

CPU = torch.device("cpu")
GEOMETRY = KVGeometry(2, 2, 8, 16, 4, 4, torch.float32)  # 4 planes, 4,096 bytes per block
FULL = 8 * 4  # blocks of one request of 128 tokens


def chosen(*, max_num_seqs=3, max_model_len=128, **cache):
    return kv_sizing.choose_num_blocks(
        CacheConfig(**cache),
        GEOMETRY,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        device=CPU,
    )


@pytest.fixture(autouse=True)
def host_with_plenty(monkeypatch):
    monkeypatch.setattr(kv_sizing, "available_host_bytes", lambda: 2**30)


def test_a_given_number_of_blocks_is_taken_as_it_is():
    assert chosen(num_blocks=5) == 5


def test_by_itself_the_pool_holds_every_slot_at_full_context():
    assert chosen(max_num_seqs=3) == 3 * FULL


def test_a_context_that_does_not_fill_its_last_page_needs_that_page_all_the_same():
    assert chosen(max_num_seqs=1, max_model_len=113) == FULL


def test_kv_cache_memory_bytes_caps_the_pool():
    assert chosen(kv_cache_memory_bytes=40 * 4096 + 4095) == 40


def test_a_share_of_the_hosts_memory_caps_the_pool(monkeypatch):
    monkeypatch.setattr(kv_sizing, "available_host_bytes", lambda: 4 * 50 * 4096)
    assert chosen() == 50


def test_a_pool_too_small_for_one_request_says_what_to_change():
    with pytest.raises(ConfigError) as caught:
        chosen(kv_cache_memory_bytes=31 * 4096)
    assert "max_model_len=128 tokens needs 32 KV blocks" in str(caught.value)
    assert "allow 31: lower max_model_len, or raise cache.kv_cache_memory_bytes" in str(
        caught.value
    )


def test_a_host_too_small_for_one_request_says_what_to_change(monkeypatch):
    monkeypatch.setattr(kv_sizing, "available_host_bytes", lambda: 4096)
    with pytest.raises(ConfigError, match="lower max_model_len, or set cache"):
        chosen()


def test_memory_that_cannot_be_had_is_refused_with_the_number_of_blocks():
    with pytest.raises(ConfigError, match=r"cache.num_blocks=1099511627776: .* lower it"):
        kv_sizing.take_pool(
            CacheConfig(num_blocks=2**40), GEOMETRY, max_num_seqs=1, max_model_len=1, device=CPU
        )
