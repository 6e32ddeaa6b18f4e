"""Where models come from, and with which device and dtype they run."""

import sys
from types import ModuleType

import pytest
import torch
from driving import tiny_model

from rlt_fsm.errors import CheckpointError, ConfigError
from runner import loading
from runner.models.weights import save_checkpoint

CPU = torch.device("cpu")


def hub(monkeypatch, download):
    module = ModuleType("huggingface_hub")
    module.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setattr(loading, "find_spec", lambda _: object())


def test_a_hub_id_without_the_hubs_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match="needs huggingface_hub: install that, or download"):
        loading.find_model("owner/name")


def test_a_hub_id_that_cannot_be_fetched_says_so_in_one_sentence(monkeypatch):
    def no_network(*_args, **_kwargs):
        raise ConnectionError("Max retries exceeded\nwith a long story")

    hub(monkeypatch, no_network)
    with pytest.raises(CheckpointError) as caught:
        loading.find_model("owner/name")
    assert str(caught.value) == (
        "'owner/name' is not a local folder and could not be fetched (ConnectionError): check the "
        "name and the network, or give a local folder"
    )


def test_only_data_is_fetched_from_the_hub(monkeypatch, tmp_path):
    asked = {}

    def download(name, *, allow_patterns):
        asked[name] = allow_patterns
        return str(tmp_path)

    hub(monkeypatch, download)
    assert loading.find_model("owner/name") == tmp_path
    assert asked == {"owner/name": ["*.safetensors", "*.json"]}


def test_a_local_folder_wins_over_a_hub_id_of_the_same_name(monkeypatch, tmp_path):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert loading.find_model("owner/name") == (tmp_path / "owner" / "name").resolve()


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
