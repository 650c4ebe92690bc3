"""The page of Django's admin that lists the locks of the project's store, and releases them by force. It holds none.

Who may see it has the permission `leased.view_lock`, who may release `leased.force_release_lock`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages  # type: ignore[import-untyped]
from django.core.exceptions import PermissionDenied  # type: ignore[import-untyped]
from django.http import HttpResponseRedirect  # type: ignore[import-untyped]
from django.template.response import TemplateResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]

from leased.contrib.django._settings import locks
from leased.contrib.django.models import Lock
from leased.errors import InvalidRequest, LeasedError

MOST = 500
"""Locks on one page; of more the first ones are shown, in the order of their keys."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A lock as it was shown, when somebody ticked it: a release is aimed at that lease, and at no later one."""

    key: str
    fencing_token: int

    @property
    def value(self) -> str:
        """As a form carries it."""
        return f"{self.fencing_token}:{self.key}"


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """See above."""

    def get_urls(self) -> list[Any]:
        """The list is the only page: there is nothing to add or to change."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="leased_lock_changelist")]

    def has_add_permission(self, request: Any) -> bool:
        """Nobody makes a lock here."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody changes one."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody deletes one: releasing by force is a permission of its own."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """The list; on POST the question whether to release what was ticked, and its answer."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return self._list(request, extra_context)
        if not request.user.has_perm("leased.force_release_lock"):
            raise PermissionDenied
        try:
            chosen = [_read(value) for value in request.POST.getlist("lock")]
        except InvalidRequest as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        if not chosen:
            self.message_user(request, "Nothing was chosen.", messages.WARNING)
        elif "sure" not in request.POST:
            return self._page(request, "force_release", {"chosen": chosen, "title": "Release by force?"})
        else:
            self._release(request, chosen)
        return HttpResponseRedirect(request.get_full_path())

    def _list(self, request: Any, extra_context: Any) -> Any:
        prefix, problem = request.GET.get("prefix", ""), None
        found: list[Any] = []
        try:
            found = locks().list(prefix, limit=MOST + 1)
        except LeasedError as error:
            problem = error
        shown = {
            "title": "Locks",
            "found": [(Chosen(one.key, one.fencing_token or 0).value, one) for one in found[:MOST]],
            "more": len(found) > MOST,
            "prefix": prefix,
            "problem": problem,
            "may_release": request.user.has_perm("leased.force_release_lock"),
            **(extra_context or {}),
        }
        return self._page(request, "locks", shown, status=200 if problem is None else problem.http_status or 500)

    def _page(self, request: Any, name: str, shown: dict[str, Any], *, status: int = 200) -> Any:
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"leased/{name}.html", context, status=status)

    def _release(self, request: Any, chosen: Iterable[Chosen]) -> None:
        for one in chosen:
            try:
                done = locks().force_release(one.key, one.fencing_token)
            except LeasedError as error:
                self.message_user(request, f"Not released: {one.key}. {error.message}", messages.ERROR)
                continue
            if done:
                self.log_change(request, Lock(key=one.key), f"Released by force, fencing token {one.fencing_token}.")
                self.message_user(request, f"Released by force: {one.key}", messages.SUCCESS)
            else:
                told = f"Left alone, for the lease that you saw has ended meanwhile: {one.key}"
                self.message_user(request, told, messages.WARNING)


def _read(value: str) -> Chosen:
    token, _, key = value.partition(":")
    if not (token.isascii() and token.isdigit() and len(token) <= 16 and key):
        raise InvalidRequest("the form was damaged: nothing was released")
    return Chosen(key, int(token))
