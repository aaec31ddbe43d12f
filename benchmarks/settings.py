"""Django settings of the contender this process measures (all contenders' apps for `migrate`)."""

from benchmarks.contenders import current, every_app
from benchmarks.place import here

_contender = current()

SECRET_KEY = "benchmarks"
DEBUG = False
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# A process loads only the apps of its contender, as a user's site would.
INSTALLED_APPS = ["benchmarks.shop", *(_contender.django_apps if _contender else every_app())]
DATABASES = {"default": here().database}

if _contender:
    globals().update(_contender.django_settings())
