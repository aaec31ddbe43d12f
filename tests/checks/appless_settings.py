"""A site that has no Celery app, or one that nobody imports."""

SECRET_KEY = "only-for-the-tests"
DEBUG = True
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "celery_guard"]
ROOT_URLCONF = "tests.checks.no_urls"
