"""The admin site: unfold's, with a front page of its own and a search that survives any query string."""

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from unfold.sites import UnfoldAdminSite

MAX_SEARCH = 200


class AdminSite(UnfoldAdminSite):
    """Where people govern."""

    index_template = "agentstore/front_page.html"
    index_title = _("Overview")
    login_form: type[AdminAuthenticationForm] | None

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Leave out the way to a row's page outside of the admin: there is none, and it asks any table for any id."""
        return [one for one in super().get_urls() if getattr(one, "name", "") != "view_on_site"]

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Find pages by name. Raises BadRequest for a page that is no number, which unfold would answer with 500."""
        page = request.GET.get("page", "1")
        if not (page.isascii() and page.isdigit() and len(page) < 5 and int(page) == 1):
            raise BadRequest("There is one page of results.")
        if len(request.GET.get("s", "")) > MAX_SEARCH:
            raise BadRequest(f"A search has at most {MAX_SEARCH} characters.")
        response: HttpResponse = super().search(request, extra_context)
        return response

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Guard a view as Django does; no page of the admin may lie in a shared cache."""
        return super().admin_view(view if cacheable else never_cache(view), cacheable)
