"""The measured task as procrastinate sees it."""

from procrastinate.contrib.django import app

from benchmarks.jobs import do_job


@app.task(queue="bench")
def work(order_id: int, kind: str) -> None:
    """Run one job."""
    do_job(order_id, kind)
