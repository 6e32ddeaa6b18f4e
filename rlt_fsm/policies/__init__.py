"""Policies by the name of their scheduler mode."""

from ..config import Mode
from .base import ADMIT, Policy, Turn, View
from .mixed import Mixed
from .no_refill import NoRefill
from .refill import Refill

__all__ = ["ADMIT", "POLICIES", "Policy", "Turn", "View"]

POLICIES: dict[Mode, type[Policy]] = {"refill": Refill, "no_refill": NoRefill, "mixed": Mixed}
