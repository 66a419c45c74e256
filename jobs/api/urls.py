"""Addresses under /api/v1/."""

from django.urls import path

from . import enrolment, github, views

urlpatterns = [
    path("jobs/<uuid:row_id>/heartbeat", views.JobHeartbeat.as_view()),
    path("jobs/claim", views.ClaimJob.as_view()),
    path("jobs/<uuid:row_id>/result", views.JobResult.as_view()),
    path("jobs/<uuid:row_id>/results", views.JobResults.as_view()),
    path("tasks/claim", views.ClaimTask.as_view()),
    path("tasks/<uuid:row_id>/start", views.StartTask.as_view()),
    path("tasks/<uuid:row_id>/heartbeat", views.TaskHeartbeat.as_view()),
    path("tasks/<uuid:row_id>/result", views.TaskResult.as_view()),
    path("enrol", enrolment.Enrol.as_view()),
    path("token/github", github.ExchangeGithubToken.as_view()),
    path("agents/me", views.Me.as_view()),
]
