"""The door for Django's Tasks framework: a backend that enqueues through the outbox.

``TASKS = {"default": {"BACKEND": "celery_guard.backends.GuardedBackend"}}``. Every function that
``@task`` decorates is a guarded Celery task, named by its module path; a worker runs it like any
other.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from celery import states
from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.utils import timezone

from celery_guard.conf import guard_settings, sound_settings
from celery_guard.enqueue.bulk import at_once
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.declaration import UNKEYED
from celery_guard.enqueue.task_framework import (
    DEFAULT_TASK_QUEUE_NAME,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskContext,
    normalize_json,
    task_enqueued,
    task_finished,
    task_started,
)
from celery_guard.jobs.adding import public_id_of
from celery_guard.run.current import current_job
from celery_guard.task import GuardedTask, guarded_task
from celery_guard.watch.checks.tasks import wrong_backend
from celery_guard.watch.task_results import HEADER, asked, ended, find, header_of, started

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "guard_options"
_FIXED = ("base", "bind", "lane", "name")
# By name: every definition, and the guarded task that runs its function.
_tasks: dict[str, tuple[AnyTask, GuardedTask]] = {}


def guarded(**options: Any) -> Callable[[F], F]:
    """Say what the guard should know of a Django task; stands below ``@task``.

    Without it, every call is a job of its own. Takes the options of
    :func:`~celery_guard.guarded_task` and of Celery's tasks, but no ``lane``: that comes from the
    task's ``queue_name`` or ``priority``. ``@coalesce`` and ``@debounce`` may stand below ``@task``
    too.

    :raises ImproperlyConfigured: here or at the task's definition, naming every fault.
    """

    def mark(function: F) -> F:
        if refused := [name for name in _FIXED if name in options]:
            raise ImproperlyConfigured(
                f"{function.__qualname__}: guarded takes no {', '.join(refused)}; a Django task's "
                "name is its function's path and its lane comes from queue_name or priority"
            )
        setattr(function, _MARK, options)
        return function

    return mark


class GuardedBackend(BaseTaskBackend):
    """Enqueues Django tasks as jobs, in the caller's transaction.

    ``QUEUES`` and ``queue_name`` name lanes, directly or by ``OPTIONS = {"lanes": {queue: lane}}``.
    In the framework's default queue the priority chooses: above 0 ``high``, 0 ``medium``, below 0
    ``low``. The result's id is the job's public id.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        lanes = self.options.get("lanes")
        self.lanes: Mapping[str, str] = lanes if isinstance(lanes, Mapping) else {}

    def validate_task(self, task: AnyTask) -> None:
        """Refuse what can't be run, and make the function known to Celery's workers.

        :raises InvalidTask: when the queue is no lane, or a priority is given for a lane.
        """
        super().validate_task(task)
        by_priority = self._by_priority(task.queue_name)
        if task.priority and not by_priority:
            raise InvalidTask(
                f"the queue {task.queue_name!r} is the lane {self.lane_of(task)!r}, in which jobs "
                "run in the order in which they are due: leave the priority out"
            )
        settings = sound_settings()
        if settings is not None and self.lane_of(task) not in settings.lanes:
            known = ", ".join(settings.lanes)
            raise InvalidTask(f"the queue {task.queue_name!r} is no lane; there are: {known}")
        _runner_of(task, self.lane_of(task))

    def lane_of(self, task: AnyTask) -> str:
        """The lane in which ``task`` waits."""
        if not self._by_priority(task.queue_name):
            return self.lanes.get(task.queue_name, task.queue_name)
        return "medium" if not task.priority else "high" if task.priority > 0 else "low"

    def _by_priority(self, queue: str) -> bool:
        return queue == DEFAULT_TASK_QUEUE_NAME and queue not in self.lanes

    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> AnyResult:
        """Write one job in the open transaction, or return the result of the one that has its key.

        :raises EnqueueError: before anything is written; the subclass says why.
        :raises TypeError: when the arguments do not fit the function, or JSON can't hold them.
        """
        self.validate_task(task)
        if in_event_loop():
            raise SynchronousOnlyOperation(
                f"{task.module_path}: in an event loop say `await task.aenqueue(…)`"
            )
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        # The result can't be told afterwards under which id a batch has found its key.
        with at_once():
            handle = _runner_of(task, self.lane_of(task)).apply_async(
                args,
                kwargs,
                queue=guard_settings().lane(self.lane_of(task)).queue,
                eta=_aware(task.run_after),
                headers={HEADER: header_of(task)},
            )
        if not getattr(handle, "created", False):
            # An eager app has run it by now; else its key was taken.
            return self.get_result(str(getattr(handle, "public_id", public_id_of(handle.id))))
        result = asked(task, str(handle.public_id), args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """How the job with this public id stands.

        :raises TaskResultDoesNotExist: when there is none, it is no Django task's, or its
            arguments and result have been purged.
        """
        return find(result_id, {name: task for name, (task, _) in _tasks.items()})

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """E011: options and queues that this backend can't use."""
        faults = [*super().check(**kwargs)]
        if told := "; ".join(self._faults()):
            faults.append(wrong_backend(self.alias, told))
        return faults

    def _faults(self) -> Iterator[str]:
        if not apps.is_installed("celery_guard"):
            yield '"celery_guard" is not in INSTALLED_APPS'
        for name in self.options:
            if name != "lanes":
                yield f"OPTIONS has no {name!r}, only 'lanes'"
        if not isinstance(self.options.get("lanes", {}), Mapping):
            yield "OPTIONS['lanes'] must be a dict of queue names and lanes"
        if (settings := sound_settings()) is None:
            return
        for queue in sorted({*self.queues, *self.lanes}):
            lane = self.lanes.get(queue, queue)
            if not self._by_priority(queue) and lane not in settings.lanes:
                yield f"the queue {queue!r} is no lane ({', '.join(settings.lanes)})"


class _Runner(GuardedTask):
    """What Celery knows of a Django task."""

    abstract = True

    def after_return(self, status: str, retval: Any, *rest: Any, **options: Any) -> None:
        """Tell Django's signal of the end, once it is stored."""
        super().after_return(status, retval, *rest, **options)
        result = getattr(self.request, "guard_task_result", None)
        if result is not None and status in (states.SUCCESS, states.FAILURE):
            task_finished.send_robust(GuardedBackend, task_result=ended(result, status, retval))


def _runner_of(task: AnyTask, lane: str) -> GuardedTask:
    name = task.module_path
    if name not in _tasks:
        options = {"key": UNKEYED, "ignore_result": True, **getattr(task.func, _MARK, {})}
        runner = guarded_task(base=_Runner, name=name, lane=lane, **options)(_body_of(task))
        _tasks[name] = task, runner
    return _tasks[name][1]


def _body_of(task: AnyTask) -> Callable[..., Any]:
    @functools.wraps(task.func)
    def body(*args: Any, **kwargs: Any) -> Any:
        job = current_job()
        result = job.request.guard_task_result = started(task, job, args, kwargs)
        task_started.send(GuardedBackend, task_result=result)
        given = (TaskContext(task_result=result), *args) if task.takes_context else args
        return task.call(*given, **kwargs)

    signature = inspect.signature(task.func)
    parameters = list(signature.parameters.values())[task.takes_context :]
    body.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return body


def _aware(when: datetime | None) -> datetime | None:
    # Without USE_TZ it is the site's local time; Celery would take it for UTC.
    return timezone.make_aware(when) if when is not None and timezone.is_naive(when) else when
