"""The example in every help, run as it stands, in a folder with the files that it names."""

import pytest
from known_commands import every_command, typed

from docs.generate.pasted import ROOT, shell

# What an example may end with, where it is not 0: its files differ, or its run broke off.
STATUS = {"rlt-audit diff": 1, "rlt-audit replay": 1}
# What an example needs beyond the files below.
BEFORE = {
    "rlt-audit archive": "rlt-fsm run --model sim --prompt hi --max-tokens 1000 --no-audit",
    "rlt-audit join": "rlt-audit archive run.db --before-step 10 -o run.0001.db; "
    "rlt-audit archive run.db --before-step 20 -o run.0002.db",
}
FILES = """
cat > w.json <<'END'
{"format": "rlt-workload/1", "depths": 4, "max_model_len": 64,
 "config": {"scheduler": {"max_num_seqs": 1}, "execution": {"atomic_prefill": false}},
 "requests": [{"id": "a", "at": 0, "prompt_len": 9, "max_tokens": 4},
              {"id": "b", "at": 2, "prompt_len": 5, "max_tokens": 6}]}
END
rlt-fsm run --workload w.json --db run.db
rlt-fsm run --workload w.json --db run.db
rlt-fsm run --workload w.json --db before.db
rlt-fsm run --workload w.json --db after.db --set scheduler.max_num_seqs=2
"""


@pytest.fixture(scope="module")
def run():
    with shell() as run:
        run(f"mkdir made; cd made; {FILES}")
        yield lambda line: run(f"rm -rf here; cp -r made here; cd here; {line}")


def example(known) -> str:
    shown = typed(known, "--help").stdout
    return " ".join(shown.partition("Example: ")[2].partition("\n\n")[0].split())


@every_command
def test_the_example_in_the_help_runs_as_it_stands(known, run):
    name = " ".join((known.program, *known.words))
    line = example(known)
    if name == "rlt-audit compare":
        line = f"git clone --quiet --shared {ROOT} c; cd c; git branch --quiet main; {line}"
        if not (ROOT / ".git").exists():
            pytest.skip("not a git checkout")
    said = run(f"{BEFORE.get(name, ':')}\n{line}\necho status $?")
    assert said.endswith(f"status {STATUS.get(name, 0)}\n"), said
    assert "Traceback" not in said
