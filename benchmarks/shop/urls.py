"""The pages of the site that `celery_guard_site` measures."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobs/", include("celery_guard.urls")),
]
