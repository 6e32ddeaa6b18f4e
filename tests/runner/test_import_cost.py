"""Importing `runner` stays cheap: names arrive when they are asked for."""

import subprocess
import sys

import pytest

import runner

HEAVY = ("torch", "numpy", "tokenizers", "safetensors")


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_runner_loads_nothing_heavy():
    assert not modules_after("import runner") & set(HEAVY)


def test_the_command_line_is_there_before_torch():
    assert not modules_after("import runner.cli") & {"torch", "tokenizers", "safetensors"}


def test_naming_a_torch_class_is_what_loads_torch():
    assert "torch" in modules_after("from runner import TorchRunner")


def test_every_public_name_is_listed():
    assert set(runner.__all__) == {"LLM", "SimRunner", "TorchRunner"}
    assert set(runner.__all__) <= set(dir(runner))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'runner' has no attribute 'Nothing'"):
        _ = runner.Nothing
