"""A module of its own, for jaiminho pickles the function it is to call."""

from jaiminho.send import save_to_outbox

from benchmarks.celery_app import work


@save_to_outbox
def send(order_id: int, kind: str) -> None:
    """Publish one job."""
    work.delay(order_id, kind=kind)
