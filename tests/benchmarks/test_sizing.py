"""The simulation of waiting jobs: held to the formula that is known, and the docs to it."""

import random
from pathlib import Path

import pytest

from benchmarks.sizing import BODIES, erlang_c, exponential, waits

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "sizing.md"


@pytest.mark.parametrize(("slots", "use"), [(1, 0.5), (4, 0.75), (16, 0.9)])
def test_the_mean_wait_is_erlangs(slots: int, use: float) -> None:
    """For exponential bodies, within what the drawn numbers vary by."""
    assert waits(slots, use, exponential).mean == pytest.approx(erlang_c(slots, use), rel=0.08)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_takes_a_second_on_average(name: str) -> None:
    """Or the share in use would be another."""
    chance = random.Random(3)
    mean = sum(BODIES[name](chance) for _ in range(200_000)) / 200_000
    assert mean == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(("slots", "use"), [(4, 0.75), (64, 0.97)])
def test_the_page_shows_what_the_simulation_says(slots: int, use: float) -> None:
    """Two rows of its table stand for all."""
    found = waits(slots, use, BODIES["mixed"])
    told = " | ".join(f"{wait:.1f}" for wait in (found.p50, found.p95, found.p99))
    assert f"| {slots} | {use:.0%} | mixed | {told} |" in PAGE.read_text()
