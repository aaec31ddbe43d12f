"""The test site with two mistakes in its setting, and tasks that need what was misspelt."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD as SOUND

CELERY_GUARD = {
    **{name: value for name, value in SOUND.items() if name != "dependencies"},
    "dependancies": SOUND["dependencies"],
    "outbox": {"captrue": "all"},
}
