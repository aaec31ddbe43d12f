"""The settings of the smallest Django project that uses the installed package."""

import os
from urllib.parse import urlsplit

_database = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = "smoke"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "celery_guard"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.path[1:],
        "USER": _database.username,
        "PASSWORD": _database.password,
        "HOST": _database.hostname,
        "PORT": _database.port,
    }
}
CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ["REDIS_URL"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
