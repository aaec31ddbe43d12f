"""Read-only lists that never count: pages go "older" and "newer" by primary key."""

from __future__ import annotations

import contextlib
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import OperationalError
from django.db.models import Max, Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from celery_guard.conf import guard_settings
from celery_guard.watch.bounded import bounded, timed_out

PAGE = 100
REACH = 200_000
"""Ids that one page looks through for its rows where no index leads to them."""
TIME_MOST = 0.1
"""Longest that finding one page may take before it looks through a part only, in seconds."""
PATIENCE = 1.0
"""Longest that looking through a part may take, in seconds: there is nothing shorter to try."""


class KeysetChangeList(ChangeList):
    """One page of rows below (``older``) or above (``newer``) a key, newest first."""

    model_admin: ReadOnlyAdmin

    def get_queryset(self, request: HttpRequest, *args: Any, **options: Any) -> QuerySet[Any]:
        """The filtered rows. The place in the list is no filter and not kept in links."""
        self._older, self._newer = self._take("older"), self._take("newer")
        return super().get_queryset(request, *args, **options)

    def _take(self, name: str) -> int | None:
        self.filter_params.pop(name, None)
        value = self.params.pop(name, "")
        with contextlib.suppress(ValueError):
            return int(value)
        return None

    def get_results(self, request: HttpRequest) -> None:
        """Fetch one page and one row more, which tells whether there is another page."""
        self.older_link = self.newer_link = ""
        self.looked_through: tuple[int, int] | None = None
        self.result_list = self._found(request)
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False

    def _found(self, request: HttpRequest) -> list[Model]:
        # Where the whole look takes too long, a part of it is shown, and where it goes on.
        for reach in (REACH,) if self.model_admin.is_rare(request) else (None, REACH):
            try:
                with bounded(guard_settings().using, PATIENCE if reach else TIME_MOST):
                    return self._page(reach)
            except OperationalError as error:
                if not timed_out(error):
                    raise
        messages.error(request, _("These rows take too long to find. Filter by less."))
        return []

    def _page(self, reach: int | None) -> list[Model]:
        size, upward = self.list_per_page, self._newer is not None
        bounds = self._bounds(reach)
        # By key whatever the address asks for: any other order sorts the whole table.
        found = list(self.queryset.filter(**bounds).order_by("pk" if upward else "-pk")[: size + 1])
        more, rows = len(found) > size, found[:size]
        rows = rows[::-1] if upward else rows
        has_older, has_newer = more or upward, more if upward else self._older is not None
        self.older_link = self._link(older=rows[-1].pk) if rows and has_older else ""
        self.newer_link = self._link(newer=rows[0].pk) if rows and has_newer else ""
        if reach is not None and not more:
            self._go_on(bounds, upward=upward)
        return rows

    def _bounds(self, reach: int | None) -> dict[str, int]:
        if self._newer is not None:
            above = {"pk__gt": self._newer}
            return above if reach is None else {**above, "pk__lt": self._newer + reach + 1}
        below = {} if self._older is None else {"pk__lt": self._older}
        if reach is None:
            return below
        top = self._older or (self.root_queryset.aggregate(top=Max("pk"))["top"] or 0) + 1
        return {"pk__lt": top, "pk__gt": top - reach - 1}

    def _go_on(self, bounds: dict[str, int], *, upward: bool) -> None:
        """The look ended at its reach: say where, and link to where it goes on."""
        low, high = bounds["pk__gt"], bounds["pk__lt"]
        self.looked_through = (max(1, low + 1), high - 1)
        everything = self.root_queryset.order_by()
        # Ids begin at 1: below that there is nothing to ask for.
        below = upward or (low > 0 and everything.filter(pk__lte=low).exists())
        above = everything.filter(pk__gte=high).exists() if upward else self._older is not None
        if below and not self.older_link:
            self.older_link = self._link(older=low + 1)
        if above and not self.newer_link:
            self.newer_link = self._link(newer=high - 1)

    def _link(self, **place: int) -> str:
        return self.get_query_string(place)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A list and a page of rows that the admin can't add, change or delete.

    ``lookups`` names the query parameters that its filters take; the admin would filter by any
    other column too, index or not.
    """

    actions_on_bottom = False
    change_list_template = "admin/celery_guard/keyset_change_list.html"
    list_per_page = PAGE
    list_max_show_all = 0
    lookups: tuple[str, ...] = ()
    ordering = ("-pk",)
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by = ()
    save_on_top = False

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        """Pages by key."""
        return KeysetChangeList

    def is_rare(self, request: HttpRequest) -> bool:
        """Whether the rows asked for may be few and far between, with no index to them."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of the ledger's database."""
        return super().get_queryset(request).using(guard_settings().using)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what the filters offer."""
        return lookup in self.lookups

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: jobs come from enqueueing."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never: an edited row would be code execution by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never: rows go by the purge, when nothing needs them."""
        return False
