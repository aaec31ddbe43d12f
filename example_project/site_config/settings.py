"""Settings of the example shop; what differs between machines comes from the environment."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key

from site_config.environment import database

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY") or get_random_secret_key()
DEBUG = os.environ.get("SHOP_DEBUG") == "1"
ALLOWED_HOSTS = os.environ.get("SHOP_HOSTS", "localhost,127.0.0.1").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "celery_guard",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "site_config.urls"
WSGI_APPLICATION = "site_config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": database(os.environ.get("DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/shop"))
}

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
CELERY_BROKER_URL = os.environ.get("BROKER_URL", REDIS_URL)
CELERY_RESULT_BACKEND = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TIMEZONE = TIME_ZONE

# Three lanes, each with its own queue and its own worker: `-Q high`, `-Q medium`, `-Q low`.
CELERY_TASK_DEFAULT_QUEUE = "medium"
CELERY_GUARD: dict[str, object] = {
    "lanes": {
        "high": {"objective": 10},
        "medium": {"objective": 60},
        "low": {"objective": 3600},
    },
}

EMAIL_HOST = os.environ.get("SMTP_HOST", "127.0.0.1")
EMAIL_PORT = int(os.environ.get("SMTP_PORT", "1025"))
EMAIL_TIMEOUT = 1.0
DEFAULT_FROM_EMAIL = "billing@shop.example"

PAYMENT_URL = os.environ.get("PAYMENT_URL", "http://127.0.0.1:8090/charges")
# Shorter than the shortest lease that the shop is run with (the demo's 2 seconds).
PAYMENT_TIMEOUT = 1.0
