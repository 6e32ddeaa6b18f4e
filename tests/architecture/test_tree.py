"""What the repository holds, what it must not name, and what ends up in the wheel."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {"README.md", "audit", "docs", "pyproject.toml", "rlt_fsm", "runner", "tests"}
MOST_CHECKPOINT_BYTES = 6_000_000
MOST_PICTURE_BYTES = 300_000
NO_TEXT = (".safetensors", ".png")
PACKAGES = ("rlt_fsm", "runner", "audit")
CHECKPOINT = ROOT / "runner" / "demo" / "checkpoint"
REPORT_PAGE = ROOT / "audit" / "reporting" / "page"

# Folders that exist on one machine, and where its packages come from. Spelled so that this file
# does not name them itself.
PERSONAL_PATH = re.compile(r"(?<![\w./-])/(?:root|home|work|mnt|opt|Users)(?:/\w|\b(?!/))")
INDEX_OPTION = re.compile("index" + "-url|PIP_" + "INDEX")


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.split("\0") if name]


def texts() -> list[tuple[str, str]]:
    """The tracked text files; a checkpoint's weights and pictures are none."""
    paths = [(name, ROOT / name) for name in tracked() if not name.endswith(NO_TEXT)]
    return [(name, path.read_text(encoding="utf-8")) for name, path in paths if path.is_file()]


def test_the_top_level_is_what_it_should_be():
    names = {name.partition("/")[0] for name in tracked()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_no_file_names_a_folder_of_one_machine():
    named = [name for name, text in texts() if PERSONAL_PATH.search(text)]
    assert named == []


def test_no_file_names_a_package_index():
    assert [name for name, text in texts() if INDEX_OPTION.search(text)] == []


def test_no_two_test_files_have_the_same_name():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_the_demo_checkpoint_is_small_and_complete():
    sizes = {path.name: path.stat().st_size for path in CHECKPOINT.iterdir() if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer_config.json"} <= sizes.keys()
    assert sum(sizes.values()) <= MOST_CHECKPOINT_BYTES


def test_pictures_are_small():
    pictures = {name: ROOT / name for name in tracked() if name.endswith(".png")}
    sizes = {name: path.stat().st_size for name, path in pictures.items() if path.is_file()}
    assert [name for name, size in sizes.items() if size > MOST_PICTURE_BYTES] == []


def test_every_package_is_typed():
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)


def test_the_wheel_is_made_of_whole_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": list(PACKAGES)}


def test_the_installed_distribution_has_the_checkpoint_the_page_and_the_types():
    try:
        installed = {str(path) for path in files("rlt-fsm") or ()}
    except PackageNotFoundError:
        installed = set()
    if not any(name.startswith("rlt_fsm/") for name in installed):
        pytest.skip("not installed from a wheel here")
    wanted = {f"{package}/py.typed" for package in PACKAGES}
    for folder in (CHECKPOINT, REPORT_PAGE):
        wanted |= {path.relative_to(ROOT).as_posix() for path in folder.iterdir()}
    assert wanted <= installed
