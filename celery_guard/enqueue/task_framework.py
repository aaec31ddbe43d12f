"""Django's Tasks framework: Django's own from 6.0 on, before that the package ``django-tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_enqueued",
    "task_finished",
    "task_started",
]

_MISSING = (
    "celery_guard.backends is for Django's Tasks framework, which is not here: it comes with "
    "Django 6.0, and on Django 5.2 with the package django-tasks"
)

if TYPE_CHECKING:
    from typing import Any

    from django.tasks import DEFAULT_TASK_QUEUE_NAME, Task, TaskContext, TaskResult
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    AnyTask = Task[Any, Any]
    AnyResult = TaskResult[Any, Any]

    def normalize_json(obj: Any) -> Any: ...

else:
    try:
        from django.tasks import DEFAULT_TASK_QUEUE_NAME, Task, TaskContext, TaskResult
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import TaskError, TaskResultStatus
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
        from django.utils.json import normalize_json
    except ModuleNotFoundError as here:
        if here.name != "django.tasks":
            raise
        try:
            from django_tasks import DEFAULT_TASK_QUEUE_NAME, TaskContext, TaskResult
        except ModuleNotFoundError as there:
            raise ImportError(_MISSING) from there
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError, TaskResultStatus
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json

    # Generic in two names, in one or in none, from release to release.
    AnyTask, AnyResult = Task, TaskResult
