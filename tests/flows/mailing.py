"""A batch of mails, each of them an effect; the mail server knows a key that it has seen."""

from celery_guard import Provider, current_job, effect, guarded_task
from celery_guard.settle.perform import Sending
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace, wait_until_open

SERVER = Provider(name="mail server", recovery="keyed", key_window=3600, timeout=2)
BLOCKED = 21


@effect("mail", item="{number}", provider=SERVER)
def mail(sending: Sending, number: int) -> dict[str, int]:
    """One mail; the one that a test wants to be interrupted waits with it under way."""
    leave_trace("mails", f"{number} {sending.key} {sending.again}")
    if number == BLOCKED:
        wait_until_open("mails")
    return {"number": number}


@guarded_task(key="mailing:{name}", atomic=False)
def mailing(name: str, count: int) -> int:
    """All mails, then one business write."""
    answers = [mail(number) for number in range(1, count + 1)]
    with current_job().finish():
        Mark.objects.create(name=name, value=str(sum(answer["number"] for answer in answers)))
    return len(answers)
