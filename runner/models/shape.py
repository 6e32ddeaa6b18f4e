"""The sizes of a looped model that memory and serving depend on, whatever its architecture.

Numbers only: each architecture's configuration says them, and everything outside `models/` reads
these instead of a configuration's own keys.
"""

from typing import NamedTuple


class ModelShape(NamedTuple):
    """Counts of elements; `layers` run in every loop, `depths` is the full number of loops.

    `state_size` is what a token carries from one operation to the next. Layers of prelude and coda
    keep K and V too, but run once per token. Where `is_seeded`, a token's loops start from a draw
    of the request's seed, and its KV depends on it.
    """

    depths: int
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context: int
    eos_token_ids: tuple[int, ...]
    state_size: int
    prelude_layers: int = 0
    coda_layers: int = 0
    is_seeded: bool = False

    @property
    def boundary_layers(self) -> int:
        """Layers that keep K and V outside the loops."""
        return self.prelude_layers + self.coda_layers
