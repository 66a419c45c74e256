"""Pages of rows that agents and services write: people look at them and act through dialogs, nobody edits."""

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from .lists import GuardedLists


class GovernedAdmin(GuardedLists):
    """Read only: view permission shows, no permission edits or deletes."""

    show_add_link = False
    actions: Sequence[str] | None = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds rows in a form."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody edits; acts have their own permissions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Only the retention purge removes history."""
        return False

    def check_view(self, request: HttpRequest) -> None:
        """Raise PermissionDenied for those who may not look; every view of our own begins with it."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the page itself: its timeline is the history, Django's log knows nothing of these rows."""
        self.check_view(request)
        return redirect(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", object_id)
