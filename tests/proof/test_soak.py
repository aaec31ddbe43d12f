"""What a soak makes of what it saw."""

from tests.chaos.level import Sample, growth
from tests.chaos.soak import LEVEL, Disturbed, faults


def samples(*memory: int) -> list[Sample]:
    return [Sample(memory=one, tables=100, indexes=10) for one in memory]


def test_growth_compares_the_last_quarter_with_the_second() -> None:
    """What fills up at first is no growth; of each quarter its most counts, since a vacuum may come."""
    seen = samples(1, 1, 40, 50, 60, 60, 75, 20)
    assert growth(seen) == {"memory": 1.5, "tables": 1.0, "indexes": 1.0}


def test_a_short_run_says_nothing_about_growth() -> None:
    """A quarter of one look is no quarter."""
    assert growth(samples(1, 2, 3, 4, 5, 6, 7)) == {}


def test_what_stays_slow_or_grows_is_a_fault() -> None:
    """A soak fails for what doesn't come back and for what doesn't stay level, and for nothing else."""
    back = Disturbed(name="broker-stopped", worst_p95_s=None, back_s=20.0)
    slow = Disturbed(name="database-crashed", worst_p95_s=3.0, back_s=None)
    assert list(faults((back,), {"memory": LEVEL, "tables": 0.9})) == []
    said = list(faults((back, slow), {"memory": LEVEL, "indexes": 1.3}))
    assert said == ["database-crashed: not as quick again within 60 s", "indexes grew 1.3×"]
