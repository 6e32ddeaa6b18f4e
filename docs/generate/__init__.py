"""The generated parts of the documentation, made from the code that they describe.

`python -m docs.generate` writes every block between `<!-- generated: NAME -->` and `<!-- end -->`
in README.md and docs/; `--outputs` also runs what the pages show and pastes what it prints;
`--check` only says which blocks are stale. Text by people is left alone. Nothing here is part of
the distribution.
"""
