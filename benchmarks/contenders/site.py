"""celery_guard in a site with the admin, on a ledger that is there already."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks import tables
from benchmarks.contenders.guard import JOBS, Guard

LANES = ("high", "medium", "low")
TOKEN = "benchmarks"
RELEASE_SOME = f"""
UPDATE {JOBS} SET sent_at = clock_timestamp(), sends = sends + 1
WHERE public_id = ANY(%s) RETURNING id
"""


class Site(Guard):
    """Everything as in `celery_guard`, with pages, a limit for admission, and three lanes."""

    name = "celery_guard_site"
    scenarios = frozenset({"history"})
    django_apps: tuple[str, ...] = (
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "celery_guard",
    )

    def django_settings(self) -> Mapping[str, Any]:
        usual = super().django_settings()
        guard = usual["CELERY_GUARD"]
        return {
            **usual,
            "CELERY_GUARD": {
                **guard,
                "lanes": {"medium": {"admission": {"depth": 1_000_000}}},
                "metrics_token": TOKEN,
                "status": {"owner": "benchmarks.contenders.site.anybody"},
            },
            "ALLOWED_HOSTS": ["*"],
            "MIDDLEWARE": [
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.middleware.common.CommonMiddleware",
                "django.middleware.csrf.CsrfViewMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware",
            ],
            "ROOT_URLCONF": "benchmarks.shop.urls",
            "STATIC_URL": "static/",
            "TEMPLATES": [
                {
                    "BACKEND": "django.template.backends.django.DjangoTemplates",
                    "APP_DIRS": True,
                    "OPTIONS": {
                        "context_processors": [
                            "django.template.context_processors.request",
                            "django.contrib.auth.context_processors.auth",
                            "django.contrib.messages.context_processors.messages",
                        ]
                    },
                }
            ],
        }

    def _make_ready(self, count: int) -> None:
        from django.db import transaction

        from celery_guard import enqueue_many

        orders = range(self.next + 1, self.next + count + 1)
        self.next += count
        with transaction.atomic():
            jobs = enqueue_many([self.work.s(order, kind="write") for order in orders])
        # Only these: a backlog lies about.
        sent = tables.execute(RELEASE_SOME, [[job.public_id for job in jobs]])
        self.ready.extend(partial(self._execute, number, "write") for (number,) in sent)

    def reset(self) -> None:
        """The ledger goes with its database."""


def anybody(request: Any, job: Any) -> bool:
    """Who may see a job: whoever asks."""
    return True


CONTENDERS = (Site(),)
