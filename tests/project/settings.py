"""Settings of the site that the tests run: everything fast, everything real."""

import os

from tests.project.databases import databases

PREFIX = os.environ.get("GUARD_TEST_PREFIX", "guardtest-")
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")

SECRET_KEY = "only-for-the-tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.project.urls"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = databases()

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "celery_guard",
    "tests.project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
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
]

CELERY_BROKER_URL = os.environ.get("GUARD_TEST_BROKER_URL") or REDIS_URL
CELERY_RESULT_BACKEND = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_TASK_DEFAULT_QUEUE = f"{PREFIX}celery"
CELERY_CONTROL_EXCHANGE = f"{PREFIX}control"
CELERY_EVENT_EXCHANGE = f"{PREFIX}events"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TIMEZONE = "UTC"

CELERY_GUARD = {
    "redis": REDIS_URL,
    "prefix": f"{PREFIX}site",
    "control_queue": f"{PREFIX}guard",
    "lanes": {"high": {"queue": f"{PREFIX}high"}, "low": {"queue": f"{PREFIX}low"}},
    "relay": {"lead_lease": 1.0, "host": os.environ.get("GUARD_TEST_HOST_RELAY") != "0"},
    "rollout": {"fallback": {"lease": 2}},
    "run": {
        "lease": int(os.environ.get("GUARD_TEST_LEASE", "2")),
        "backoff_base": 0.05,
        "backoff_cap": 1,
    },
    "sweep": {"every": 0.5, "resend_grace": 2},
    "snapshot": {"every": 0.5},
    "limits": os.environ.get("GUARD_TEST_LIMITS", "auto"),
    "dependencies": {
        "provider": {"rate": "8/s", "burst": 5},
        "desk": {"concurrency": 1},
        "mail": {"rate": "1/h", "burst": 2},
    },
}

TASKS = {
    "default": {
        "BACKEND": "celery_guard.backends.GuardedBackend",
        "QUEUES": ["default", "emails", "high"],
        "OPTIONS": {"lanes": {"emails": "low"}},
    }
}
