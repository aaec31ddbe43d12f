"""The door to the pages: ``path("jobs/", include("celery_guard.urls"))``."""

from __future__ import annotations

from django.urls import path

from celery_guard.watch.status.views import cancel, status
from celery_guard.watch.views import health, metrics, scale

app_name = "celery_guard"

urlpatterns = [
    path("metrics", metrics, name="metrics"),
    path("healthz", health, name="health"),
    path("scale.json", scale, name="scale"),
    path("<uuid:public_id>/", status, name="status"),
    path("<uuid:public_id>/cancel/", cancel, name="cancel"),
]
