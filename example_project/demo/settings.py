"""The shop's settings, hurried up so that a kill heals in seconds and not in a minute."""

from site_config.settings import *  # noqa: F403
from site_config.settings import CELERY_GUARD as PATIENT

CELERY_GUARD = {
    **PATIENT,
    "run": {"lease": 2, "backoff_base": 0.25, "backoff_cap": 2},
    "sweep": {"every": 0.5, "resend_grace": 2},
    "snapshot": {"every": 1},
}
