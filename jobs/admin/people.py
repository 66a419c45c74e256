"""Users and groups in the look of the rest, with lists that survive any query string; and who tried to log in."""

from typing import ClassVar

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.http import HttpRequest
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from .governed import GovernedAdmin
from .lists import GuardedLists

for table in (User, Group, AccessAttempt, AccessFailureLog, AccessLog):
    admin.site.unregister(table)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, GuardedLists):  # type: ignore[misc, type-arg]  # unfold has no types
    """People who may log in."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_filter = ()
    list_display = ("username", "first_name", "last_name", "email", "is_staff", "is_active")


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, GuardedLists):  # type: ignore[misc]  # unfold has no types
    """Viewers, Operators, Governors, and what an installation adds."""


class LoginRecordAdmin(GovernedAdmin):
    """What the lockout wrote down of a login. Nobody edits it, or it proves nothing."""

    list_display: ClassVar[tuple[str, ...]] = ("attempt_time", "ip_address", "username", "user_agent")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    sortable_by = ()


admin.site.register([AccessFailureLog, AccessLog], LoginRecordAdmin)


@admin.register(AccessAttempt)
class AccessAttemptAdmin(LoginRecordAdmin):
    """Failed logins that count towards a lockout: deleting one lets that person try again."""

    list_display = ("attempt_time", "ip_address", "username", "failures_since_start")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether this person may end a lockout."""
        return request.user.has_perm("axes.delete_accessattempt")
