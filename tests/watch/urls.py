"""The guard's own pages, and those of django-prometheus beside them."""

from __future__ import annotations

from django.urls import include, path
from django_prometheus.exports import ExportToDjangoView

urlpatterns = [
    path("guard/", include("celery_guard.urls")),
    path("other/metrics", ExportToDjangoView),
]
