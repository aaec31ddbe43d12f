"""What comparisons found, in groups; somebody says of a group that it is dealt with."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http import HttpResponseRedirect as Redirect
from django.urls import path, reverse
from django.utils.translation import gettext as _

from celery_guard.conf import guard_settings
from celery_guard.enqueue.rollout.models import Mismatch
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.watch.admin.asked import STEER
from celery_guard.watch.admin.keyset import ReadOnlyAdmin


class MismatchAdmin(ReadOnlyAdmin):
    """Each way in which runs beside the site's own differed, and how often."""

    list_display = ("id", "task", "difference", "count", "first_at", "last_at", "settled_by")
    change_form_template = "admin/celery_guard/mismatch/change_form.html"

    def get_urls(self) -> list[Any]:
        """And the address that settles one."""
        view = self.admin_site.admin_view(self.settle)
        own = path("<int:row_id>/settle/", view, name="celery_guard_mismatch_settle")
        return [own, *super().get_urls()]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Mismatch | None = None,
    ) -> HttpResponse:
        """With the button that settles it, while it is open."""
        is_open = obj is not None and obj.settled_at is None
        context["may_settle"] = is_open and request.user.has_perm(STEER)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def settle(self, request: HttpRequest, row_id: int) -> HttpResponse:
        """Say that it is dealt with, by POST only; the next one of its kind opens it again.

        :raises PermissionDenied: without the permission to steer.
        """
        if not request.user.has_perm(STEER):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        rows = Mismatch.objects.using(guard_settings().using).filter(pk=row_id)
        if (row := rows.first()) is None:
            raise Http404
        by = request.user.get_username()[:150]
        if rows.filter(settled_at=None).update(settled_at=DatabaseNow(), settled_by=by):
            LogEntry.objects.log_actions(
                cast(int, request.user.pk),
                [row],
                CHANGE,
                change_message=f"{row}: settled",
                single_object=True,
            )
            self.message_user(request, _("Settled, until it is found again."), messages.SUCCESS)
        return Redirect(reverse("admin:celery_guard_mismatch_change", args=[row_id]))
