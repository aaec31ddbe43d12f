"""How long the runs of each task took, from the histogram that is counted anyway."""

from __future__ import annotations

import json
from collections import defaultdict

from celery_guard.relay.costs import Measured, measures
from celery_guard.watch.counted import MICRO
from celery_guard.watch.models import Series

ROWS_MOST = 20_000
_NAME = "job_duration_seconds:"


@measures
def run_times(using: str) -> Measured:
    """By task: the seconds of all its good runs, and how many; all lanes together."""
    seconds: dict[str, float] = defaultdict(float)
    runs: dict[str, int] = defaultdict(int)
    rows = Series.objects.using(using).filter(name__startswith=_NAME)[:ROWS_MOST]
    for name, labels, value in rows.values_list("name", "labels", "value"):
        _, task = json.loads(labels)
        if name == f"{_NAME}sum":
            seconds[task] += value / MICRO
        else:
            runs[task] += value
    return {task: (seconds[task], count) for task, count in runs.items()}
