"""What operators begin and end in the admin: a list, a page that asks, an address that ends one.

Everything that changes is a POST, needs the permission of its kind, and is written into the admin's
log in the operator's name.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http import HttpResponseRedirect as Redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.watch.admin.keyset import ReadOnlyAdmin

STEER = "celery_guard.steer_jobs"
HOUR, DAY = 3600, 86400
SURE = "sure"
"""The field of a form that an operator has said yes to."""


class AskedAdmin(ReadOnlyAdmin):
    """A list of rows that operators begin by a form and may end before their time."""

    permission: ClassVar[str] = STEER
    asking: ClassVar[type[forms.Form]]
    verb: ClassVar[str]
    """What the address and the page's template are called: ``pause``, ``start``."""
    begin_label: ClassVar[Any]
    begun: ClassVar[Any]
    end_verb: ClassVar[str] = "end"
    end_label: ClassVar[Any] = gettext_lazy("End it now")
    ended: ClassVar[Any]
    ended_word: ClassVar[str] = "ended"
    change_list_template = "admin/celery_guard/asked/change_list.html"
    change_form_template = "admin/celery_guard/asked/change_form.html"

    def begin(self, using: str, given: dict[str, Any], author: str) -> Model:
        """Do what the form asks for.

        :raises ValueError: naming every fault; nothing was written.
        """
        raise NotImplementedError

    def end(self, using: str, row: Any, by: str) -> bool:
        """End ``row``; whether it was not over already."""
        raise NotImplementedError

    def is_ongoing(self, row: Any) -> bool:
        """Whether ``row`` can be ended."""
        return bool(type(row).objects.using(guard_settings().using).in_force().filter(pk=row.pk))

    def to_confirm(self, form: forms.Form) -> list[str]:
        """What a second page says before it is done; nothing: there is no such page."""
        return []

    def more(self, request: HttpRequest) -> dict[str, Any]:
        """More for the page that asks."""
        return {}

    def initial(self, request: HttpRequest) -> dict[str, Any]:
        """What the form has in it at first."""
        return {}

    def said_of(self, row: Any) -> str:
        """The row in the admin's log."""
        return str(row)

    def get_urls(self) -> list[Any]:
        """And the page that asks, and the address that ends one."""
        wrap, name = self.admin_site.admin_view, f"celery_guard_{self.opts.model_name}"
        return [
            path(f"{self.verb}/", wrap(self.ask_view), name=f"{name}_{self.verb}"),
            path(
                f"<int:row_id>/{self.end_verb}/",
                wrap(self.end_view),
                name=f"{name}_{self.end_verb}",
            ),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With the way to a new one, where this operator may take it."""
        way = self._address(self.verb) if request.user.has_perm(self.permission) else ""
        more = {"begin_url": way, "begin_label": self.begin_label}
        return super().changelist_view(request, {**(extra_context or {}), **more})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Model | None = None,
    ) -> HttpResponse:
        """With the button that ends it, while it is under way."""
        may = obj is not None and request.user.has_perm(self.permission) and self.is_ongoing(obj)
        context["end_url"] = self._address(self.end_verb, obj.pk) if obj and may else ""
        context["end_label"] = self.end_label
        return super().render_change_form(request, context, add, change, form_url, obj)

    def ask_view(self, request: HttpRequest) -> HttpResponse:
        """Ask what is wanted; do it by POST.

        :raises PermissionDenied: without the permission.
        """
        self._check(request)
        posted = request.method == "POST"
        form = self.asking(request.POST if posted else None, initial=self.initial(request))
        told: list[str] = []
        if posted and form.is_valid():
            told = self.to_confirm(form)
            if (not told or SURE in request.POST) and (row := self._begin(request, form)):
                return Redirect(self._address("change", row.pk))
        context = {
            **self.admin_site.each_context(request),
            "title": self.begin_label,
            "opts": self.opts,
            "list_url": self._address("changelist"),
            "form": form,
            "told": told if form.is_bound and form.is_valid() else [],
            **self.more(request),
        }
        template = f"admin/celery_guard/{self.opts.model_name}/{self.verb}.html"
        return TemplateResponse(request, template, context)

    def _begin(self, request: HttpRequest, form: forms.Form) -> Model | None:
        author = request.user.get_username()
        try:
            row = self.begin(guard_settings().using, form.cleaned_data, author)
        except ValueError as error:
            form.add_error(None, str(error))
            return None
        self._log(request, row, ADDITION, str(getattr(row, "reason", "")))
        self.message_user(request, self.begun, messages.SUCCESS)
        return row

    def end_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        """End one, by POST only.

        :raises PermissionDenied: without the permission.
        """
        self._check(request)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self.get_queryset(request).filter(pk=row_id).first()
        if row is None:
            raise Http404
        if self.end(guard_settings().using, row, request.user.get_username()):
            self._log(request, row, CHANGE, self.ended_word)
            self.message_user(request, self.ended, messages.SUCCESS)
        else:
            self.message_user(request, _("It was over already."), messages.WARNING)
        return Redirect(self._address("change", row_id))

    def _check(self, request: HttpRequest) -> None:
        if not request.user.has_perm(self.permission):
            raise PermissionDenied

    def _address(self, what: str, *args: int) -> str:
        return reverse(f"admin:celery_guard_{self.opts.model_name}_{what}", args=args)

    def _log(self, request: HttpRequest, row: Model, flag: int, what: str) -> None:
        LogEntry.objects.log_actions(
            cast(int, request.user.pk),
            [row],
            flag,
            change_message=f"{self.said_of(row)}: {what}",
            single_object=True,
        )
