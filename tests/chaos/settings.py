"""The test site, with budgets that no amount of killing uses up: the kills are not the jobs' fault."""

import os

from tests.project import settings as site
from tests.project.settings import *  # noqa: F403

DATABASES = {"default": site.DATABASES["default"]}
CELERY_IMPORTS = ("tests.chaos.tasks",)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_GUARD = {
    **site.CELERY_GUARD,
    "run": {
        "lease": 2,
        "lost": 100_000,
        "failures": 100_000,
        "backoff_base": 0.05,
        "backoff_cap": 1,
    },
}
if keep := os.environ.get("CHAOS_KEEP"):
    # A soak forgets what has ended so soon that its tables can be seen to stay level.
    CELERY_GUARD["retention"] = dict.fromkeys(("succeeded", "failed", "keys"), float(keep))
    CELERY_RESULT_EXPIRES = float(keep)
