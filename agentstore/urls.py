"""All addresses of the server; /healthz and /readyz are answered by agentstore.health before these."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from jobs.api import unrouted
from jobs.api.metrics import metrics

# Under /api/ an error is never a page made for people.
handler400 = "jobs.api.unrouted.bad_request"
handler500 = "jobs.api.unrouted.server_error"

# Runners' calls first: they are nearly all there are.
urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("jobs.api.urls")),
    path("api/v1/", include("artifacts.api")),
    re_path(r"^api(?:/|\Z)", unrouted.not_found),
    path("metrics", metrics),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("artifacts/", include("artifacts.urls")),
]
