"""The shop's addresses and the metrics page, /guard/metrics."""

from django.urls import include, path

urlpatterns = [
    path("guard/", include("celery_guard.urls")),
    path("", include("site_config.urls")),
]
