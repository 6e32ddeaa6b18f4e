"""The pages, and the code that knows how to run what they show."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # docs.generate is part of no distribution
