"""Devices fail on purpose here: what the engine says of it is of no interest."""

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.reset_defaults()
