"""Effects in the admin: the list, and a person's word on one that has no answer."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.settle.models import Effect
from celery_guard.settle.reconcile import decide
from celery_guard.watch.admin.dashboard import undecided
from celery_guard.watch.admin.keyset import ReadOnlyAdmin

SETTLE = "celery_guard.settle_effect"


class EffectAdmin(ReadOnlyAdmin):
    """What was asked of the outside world; answers are never shown."""

    list_display = ("id", "name", "item", "state", "provider", "job", "sent_at", "settled_by")
    list_select_related = ("job",)
    fields = (
        *("job", "name", "item", "state", "recovery", "provider", "provider_key", "version"),
        *("created_at", "sent_at", "key_until", "look_at", "looks"),
        *("settled_at", "settled_by", "note"),
        *("reopened_at", "reopened_by", "reopened_for"),
    )
    change_form_template = "admin/celery_guard/effect/change_form.html"

    def get_queryset(self, request: HttpRequest) -> Any:
        """Without the answers."""
        return super().get_queryset(request).defer("answer")

    def get_urls(self) -> list[Any]:
        """And the page that asks for a decision."""
        view = self.admin_site.admin_view(self.settle)
        own = path("<int:effect_id>/settle/", view, name="celery_guard_effect_settle")
        return [own, *super().get_urls()]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Effect | None = None,
    ) -> HttpResponse:
        """With the way to a decision, where one is wanted and this operator may take it."""
        may = request.user.has_perm(SETTLE)
        context["may_settle"] = may and obj is not None and _is_undecided(obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def settle(self, request: HttpRequest, effect_id: int) -> HttpResponse:
        """Ask what happened at the provider and why that is known; keep it by POST.

        :raises PermissionDenied: without the permission to settle.
        """
        if not request.user.has_perm(SETTLE):
            raise PermissionDenied
        effects = Effect.objects.using(guard_settings().using).defer("answer").select_related("job")
        effect = effects.filter(pk=effect_id).first()
        if effect is None:
            raise Http404
        word, reason = request.POST.get("applied", ""), request.POST.get("reason", "").strip()
        asked = request.method == "POST"
        if asked and word in ("yes", "no") and reason:
            return self._decided(request, effect, applied=word == "yes", reason=reason)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Settle an effect"),
            "opts": self.opts,
            "effect": effect,
            "undecided": _is_undecided(effect),
            "word": word,
            "reason": reason,
            "incomplete": asked,
        }
        return TemplateResponse(request, "admin/celery_guard/effect/settle.html", context)

    def _decided(
        self, request: HttpRequest, effect: Effect, *, applied: bool, reason: str
    ) -> HttpResponse:
        using, by = guard_settings().using, request.user.get_username()
        # A call may have come back since the page was shown: then there is nothing to decide.
        done = _is_undecided(effect) and decide(
            using, effect.pk, applied=applied, by=by, reason=reason
        )
        if done:
            emit("watch.effect_settled", effect=effect.pk, by=by, applied=applied)
            what = "applied" if applied else "not applied"
            LogEntry.objects.log_actions(
                cast(int, request.user.pk),
                [effect],
                CHANGE,
                change_message=f"{what}: {reason}",
                single_object=True,
            )
            self.message_user(request, _("Settled. The job goes on by itself."), messages.SUCCESS)
        else:
            self.message_user(request, _("It was settled already."), messages.WARNING)
        return HttpResponseRedirect(reverse("admin:celery_guard_effect_change", args=[effect.pk]))


def _is_undecided(effect: Effect) -> bool:
    using = guard_settings().using
    return Effect.objects.using(using).filter(undecided(), pk=effect.pk).exists()
