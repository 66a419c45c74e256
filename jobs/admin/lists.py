"""Lists that stay fast with ten million rows and answer any query string."""

import re
from typing import Any

from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from jobs.services.documents import UNSTORABLE

COUNT_AT_MOST = 10_000  # rows; an exact count of millions takes longer than anyone pages through them
MAX_QUERY = 500  # characters of one value in a query string
SAFE_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # not subscriptable at run time
    """Counts up to COUNT_AT_MOST rows; who needs older ones filters."""

    template_name = "agentstore/pagination.html"

    @cached_property
    def count(self) -> int:
        """How many rows there are, COUNT_AT_MOST if there are more."""
        return min(self._counted, COUNT_AT_MOST)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than were counted."""
        return self._counted > COUNT_AT_MOST

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        counted: int = rows.order_by()[: COUNT_AT_MOST + 1].count()
        return counted


class GuardedChangeList(ChangeList):
    """Refuses what PostgreSQL cannot compare with, before a filter sees it."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        for name, values in request.GET.lists():
            if not SAFE_PARAMETER.fullmatch(name) or any(
                len(value) > MAX_QUERY or UNSTORABLE.search(value) for value in values
            ):
                raise IncorrectLookupParameters(name)
        super().__init__(request, *args, **kwargs)

    def url_for_result(self, result: Any) -> str:
        """The page of a row; without one, its first cell is no link, but names the row all the same."""
        if not self.model_admin.rows_have_pages:
            raise NoReverseMatch
        url: str = super().url_for_result(result)
        return url


class GuardedLists(ModelAdmin):
    """Lists of an admin page: filters by a fixed table of names only, a bounded count, bounded pages."""

    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # each choice of each filter would be counted
    paginator = CappedPaginator
    list_filter_submit = True
    rows_have_pages = True  # False instead of no list_display_links, for which unfold labels the cell "Select record"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[GuardedChangeList]:
        """Use the guarded list."""
        return GuardedChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the parameters of this list's filters; Django's default lets any local column through."""
        filters: Any = self.list_filter
        return any(lookup in (one.parameter_name, *getattr(one, "ends", ())) for one in filters)
