"""Where models come from, and with which device and dtype they run."""

import pytest
import torch
from driving import tiny_model

from rlt_fsm.errors import ConfigError
from runner import loading
from runner.models.weights import save_checkpoint

CPU = torch.device("cpu")


def test_a_loaded_folder_is_named_after_itself(tmp_path):
    loaded = tiny_model()
    save_checkpoint(tmp_path / "mine", loaded.config, loaded.model)
    again = loading.load_model(tmp_path / "mine", "cpu", "float16")
    assert (again.name, again.folder) == ("mine", (tmp_path / "mine").resolve())
    assert again.model.lm_head.weight.dtype is torch.float16


def test_automatic_dtype_is_fp32_on_a_cpu_and_bf16_on_cuda():
    assert loading.resolve_dtype("auto", CPU) is torch.float32
    assert loading.resolve_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert loading.resolve_dtype("float32", torch.device("cuda")) is torch.float32


def test_an_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="dtype='int8': must be 'auto' or one of float32, bf"):
        loading.resolve_dtype("int8", CPU)


@pytest.mark.parametrize("device", ["gpu", "mps", "meta", ""])
def test_a_device_of_another_kind_is_refused(device):
    with pytest.raises(ConfigError, match="must be 'auto', 'cpu' or 'cuda"):
        loading.resolve_device(device)


def test_a_cuda_device_that_is_not_there_is_refused_with_their_number():
    count = torch.cuda.device_count()
    with pytest.raises(ConfigError, match=f"{count} CUDA devices"):
        loading.resolve_device(f"cuda:{count}")


def test_auto_takes_cuda_where_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert loading.resolve_device("auto").type == expected


def test_reading_tells_how_many_megabytes_of_how_many_are_there():
    told = []
    loading.load_model("demo", "cpu", "float32", lambda done, total: told.append((done, total)))
    (total,) = {total for _, total in told}
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == total > 1
