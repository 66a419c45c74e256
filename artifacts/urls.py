"""Addresses of evidence for people, under /artifacts/."""

from django.urls import path

from . import views

app_name = "artifacts"
urlpatterns = [
    path("<uuid:artifact_id>/open", views.open_artifact, name="open"),
    path("<uuid:artifact_id>/thumbnail", views.thumbnail, name="thumbnail"),
    path("jobs/<uuid:job_id>/evidence.zip", views.export, name="export"),
    path("bytes/<str:token>", views.artifact_bytes, name="bytes"),
]
