"""Fixtures and rules for every test. Kinds of tests have a folder each; see ARCHITECTURE.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine that does much else is no fault of a property. Where CI is set, Hypothesis has such a
# profile by itself.
if settings.get_current_profile_name() == "default":
    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")

# A test may open many; what is still open after it was forgotten by somebody.
DESCRIPTORS_LEFT_MAX = 120


@pytest.fixture(autouse=True)
def _descriptors_are_given_back() -> Iterator[None]:
    yield
    left = len(list(Path("/proc/self/fd").iterdir()))
    assert left < DESCRIPTORS_LEFT_MAX, f"{left} descriptors are open after this test"
