"""Requests for a job's status."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from celery_guard.models import Job

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"


def logged_in(name: str) -> Client:
    """A client of a new user."""
    client = Client()
    client.force_login(User.objects.create_user(name))
    return client


def url(job: Job | uuid.UUID) -> str:
    """Where the job's status is."""
    return f"/guard/{job.public_id if isinstance(job, Job) else job}/"


def told(client: Client, job: Job, **headers: str) -> dict[str, Any]:
    """The document."""
    answer = client.get(url(job), headers=headers)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def page(client: Client, job: Job) -> str:
    """The page, with its blanks made one."""
    answer: HttpResponse = client.get(url(job), headers={"Accept": HTML})
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())
