"""The door for tasks: ties asking (``delay``) and running (``__call__``) together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, overload

from celery import Celery, Task, shared_task
from django.views.decorators.debug import sensitive_variables
from kombu.utils.uuid import uuid

from celery_guard.conf import Mode, guard_settings
from celery_guard.enqueue.admission.overload import on_terms
from celery_guard.enqueue.alone import enqueue_alone
from celery_guard.enqueue.binding import Shape
from celery_guard.enqueue.call import Call, calling, checked_schedule, in_event_loop
from celery_guard.enqueue.coalescing import mark_of
from celery_guard.enqueue.declaration import OPTIONS, Declaration, declare
from celery_guard.enqueue.faithful import check_faithful
from celery_guard.enqueue.handle import JobHandle
from celery_guard.enqueue.install import install
from celery_guard.enqueue.publish import place
from celery_guard.enqueue.rollout.comparing import ask_for_comparison
from celery_guard.enqueue.rollout.mode import choose
from celery_guard.enqueue.template import Template, placed, template_of
from celery_guard.errors import Cancelled, GuardError, JobCancelled
from celery_guard.outbox.capture import Captured, CapturingProducer, collection
from celery_guard.run.answer import told
from celery_guard.run.attempt import execute
from celery_guard.run.comparison import refuse_in_rehearsal
from celery_guard.run.fallback import falls_back, serve
from celery_guard.run.plain import run_here
from celery_guard.run.retry import job_of, replace, retry

if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task


# Celery stores and tells these ends like any other, and logs them as expected, not as errors.
_EXPECTED: tuple[type[Exception], ...] = (Cancelled, JobCancelled)


class GuardedTask(_Task):
    """The base class of a guarded task.

    ``@guarded_task(key="invoice:{order_id}")`` is the short form of
    ``@shared_task(base=GuardedTask, key="invoice:{order_id}")``; ``@app.task(base=GuardedTask,
    key=…)`` works too. See :func:`guarded_task` for the options.

    Celery's own acknowledgement settings are fixed: late, and never requeued by the broker,
    because the ledger rescues.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = False
    acks_on_failure_or_timeout = True
    Request = "celery_guard.run.request:GuardedRequest"
    throws = _EXPECTED
    guard: Declaration
    guard_shape: Shape | None = None
    guard_template: Template | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "throws" in vars(cls):
            own = cls.throws if isinstance(cls.throws, tuple) else (cls.throws,)
            cls.throws = (*own, *_EXPECTED)
        if "run" in vars(cls) and not vars(cls).get("abstract"):
            given = {name: getattr(cls, name) for name in OPTIONS if hasattr(cls, name)}
            given |= mark_of(cls.run)
            name = str(cls.name or f"{cls.__module__}.{cls.__name__}")
            cls.guard = declare(name, _arguments(cls), given)

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Guard the app that the task belongs to."""
        install(app)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one attempt of the job; called directly, as a function, just the body."""
        return execute(self, args, kwargs)

    def retry(self, *args: Any, **options: Any) -> Any:
        """Celery's ``retry``; in a guarded attempt nothing is published: the job waits.

        :raises celery.exceptions.Retry: always, unless ``throw=False``.
        """
        job = job_of(self)
        if job is None:
            return super().retry(*args, **options)
        return retry(job, *args, **options)

    def on_replace(self, sig: Any) -> Any:
        """Celery's hook of ``replace``; in a guarded attempt it is enqueued with the job's end."""
        job = job_of(self)
        if job is None:
            return super().on_replace(sig)
        return replace(job, sig)

    def after_return(self, *args: Any, **options: Any) -> None:
        """Celery's hook after it has stored the end: whoever waits has been answered.

        An override must call it, or the job is answered again.
        """
        told(self)
        super().after_return(*args, **options)

    def lane_queue(self) -> str:
        """The queue of the task's lane."""
        return guard_settings().lane(self.guard.lane).queue

    def AsyncResult(self, task_id: str, **options: Any) -> JobHandle:  # noqa: N802
        """The handle of a job of this task."""
        if options or task_id is None:
            handle = JobHandle(task_id, **{"app": self.app, "backend": self.backend, **options})
        else:
            handle = JobHandle.light(task_id, self.app, self.backend)
        handle.using, handle.lane = self.guard.alias, self.guard.lane
        return handle

    # An override, or what a test puts in its place, has no such mark, and is always called.
    AsyncResult.guard_own = True  # type: ignore[attr-defined]

    @sensitive_variables()
    def delay(self, *args: Any, **kwargs: Any) -> JobHandle:
        """Enqueue one job in the open transaction; see :meth:`apply_async`."""
        handle: JobHandle = self.apply_async(args, kwargs)
        return handle

    @sensitive_variables()
    def apply_async(  # type: ignore[override]
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        **options: Any,
    ) -> Any:
        """Enqueue one job in the open transaction.

        Takes Celery's options and returns a :class:`JobHandle`. Nothing is sent and no broker
        is needed here; the relay sends after the commit.

        A full lane does not stop it: the handle's ``pressure`` tells. ``on_overload="raise"``
        asks for room first, as :func:`~celery_guard.admit` does.

        :raises AdmissionRefused: with ``on_overload="raise"``, when a limit is reached.
        :raises EnqueueError: before anything is written; the subclass says why.
        :raises TypeError: when the arguments do not fit the task.
        """
        if task_id is None and not options:
            handle = enqueue_alone(self, args or (), kwargs or {})
            if handle is not None:
                return handle
        app = self.app
        if app.conf.task_always_eager:
            options.pop("on_overload", None)
            check_faithful(self.name, args or (), kwargs or {})
            return super().apply_async(args, kwargs, task_id=task_id, producer=producer, **options)
        # What is only collected is a message for later, or for a job that is there already.
        mode = Mode.ON if collection() is not None else self._mode(args, kwargs)
        return self._publish(mode, args, kwargs, task_id, producer, options)

    @sensitive_variables()
    def submit(self, *args: Any, **kwargs: Any) -> JobHandle:
        """Have the work done, in the way that the task's mode says, and return the handle.

        Under ``on``, and for the keys that ``canary`` selects, it is :meth:`delay`. Else the body
        runs here and now, as if called as a function: the handle has its ``result``, and what it
        raises is raised. Under ``compare`` it then runs once more in a worker, in a transaction
        that is rolled back, and a different result is kept as a mismatch. Under ``observe`` it is
        counted what the guard would have done.

        While the broker is away, a job of a task that says ``fallback=True`` is run here too,
        within the bounds of the settings ``rollout.fallback.*``. What its body raises is in the
        handle then, as of any job.

        :raises AdmissionRefused: past those bounds; nothing was written.
        :raises EnqueueError: as :meth:`delay` does, where that enqueues.
        :raises GuardError: under ``compare``, where the task does not declare ``comparable=True``.
        """
        mode = self._mode(args, kwargs)
        if self.app.conf.task_always_eager:
            return self.delay(*args, **kwargs)
        if mode.guards:
            return self._submit_job(mode, args, kwargs)
        if mode is Mode.COMPARE and not self.guard.comparable:
            raise GuardError(f"{self.name} has the mode compare and is not comparable=True")
        refuse_in_rehearsal(self.name)
        value, effects = run_here(self, args, kwargs)
        if mode is Mode.COMPARE:
            ask_for_comparison(self, args, kwargs, value, effects)
        return self.AsyncResult(uuid()).with_result(value)

    def _submit_job(self, mode: Mode, args: Any, kwargs: Any) -> JobHandle:
        def enqueue() -> JobHandle:
            handle: JobHandle = self._publish(mode, args, kwargs, None, None, {})
            return handle

        return serve(self, args, kwargs, enqueue) if falls_back(self) else enqueue()

    def _publish(
        self,
        mode: Mode,
        args: Any,
        kwargs: Any,
        task_id: str | None,
        producer: Any,
        options: dict[str, Any],
    ) -> Any:
        app = self.app
        if not mode.guards:
            return self._publish_plainly(args, kwargs, task_id, producer, mode, options)
        options = on_terms(self, args or (), kwargs or {}, options)
        if placed(task_id, options) and (template := self._template()) is not None:
            check_faithful(self.name, args or (), kwargs or {})
            captured = template.fill(app, args or (), kwargs or {}, task_id, options)
            call = Call(fixed_id=task_id is not None, mode=mode)
            place(self, captured, call)
            return self.guard_handle(captured, call)
        call = checked_schedule(self.name, options)
        call.fixed_id, call.mode = task_id is not None, mode
        with calling(call):
            handle = super().apply_async(
                args, kwargs, task_id=task_id, producer=CapturingProducer(app), **options
            )
        return call.answer(handle) if isinstance(handle, JobHandle) else handle

    # As with ``AsyncResult``.
    apply_async.guard_own = True  # type: ignore[attr-defined]

    @sensitive_variables()
    def delay_on_commit(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`delay`, which waits for the commit by itself, and returns the handle."""
        return self.delay(*args, **kwargs)

    @sensitive_variables()
    def apply_async_on_commit(self, *args: Any, **options: Any) -> Any:
        """:meth:`apply_async`, which waits for the commit by itself, and returns the handle."""
        return self.apply_async(*args, **options)

    def _mode(self, args: Any, kwargs: Any) -> Mode:
        return choose(self, args or (), kwargs or {}, blind=in_event_loop())

    def _publish_plainly(
        self,
        args: Any,
        kwargs: Any,
        task_id: str | None,
        producer: Any,
        mode: Mode,
        options: dict[str, Any],
    ) -> Any:
        options.pop("on_overload", None)
        with calling(Call(mode=mode)):
            return super().apply_async(args, kwargs, task_id=task_id, producer=producer, **options)

    def _template(self) -> Template | None:
        if in_event_loop() or collection() is not None:
            return None
        return template_of(self, self.app)

    def guard_handle(self, captured: Captured, call: Call) -> JobHandle:
        """The handle of a call that has been written, or will be at the end of its batch."""
        handle = self.AsyncResult(captured.task_id)
        handle.ignored = captured.ignore_result
        return call.answer(handle)


def _arguments(task: type[_Task]) -> list[str]:
    # Celery makes ``run`` a static method of an unbound task, a plain function of a bound one.
    run = inspect.getattr_static(task, "run")
    if isinstance(run, staticmethod):
        return list(inspect.signature(run.__func__).parameters)
    return list(inspect.signature(run).parameters)[1:]


@overload
def guarded_task(function: Callable[..., Any], /) -> GuardedTask: ...


@overload
def guarded_task(
    *, base: type[GuardedTask] = GuardedTask, **options: Any
) -> Callable[[Callable[..., Any]], GuardedTask]: ...


def guarded_task(*args: Any, base: type[GuardedTask] = GuardedTask, **options: Any) -> Any:
    """Decorate a function as a guarded task of every Celery app, like ``shared_task``.

    :param key: names the business operation: a template over the arguments
        (``"invoice:{order_id}"``), a callable that takes them, or ``UNKEYED``. A function marked
        by :func:`coalesce` or :func:`debounce` needs none.
    :param lane: ``"high"``, ``"medium"`` (default), ``"low"`` or another lane of the settings.
    :param tenant: the unit of fairness, a template or callable like ``key``.
    :param dependency: the other system that the body calls: one of the setting ``dependencies``.
        A job starts when its limits allow, and waits without a worker until then.
    :param atomic: True (default): the body runs in one transaction with the job's end. False:
        it runs in autocommit and writes inside ``with current_job().finish():``.
    :param transient: exception classes that are tried again and counted.
    :param permanent: exception classes that are never tried again.
    :param on_failed: what enqueueing over a failed job does: ``"rerun"`` it or ``"return"`` it.
    :param lease: seconds a claim lasts without a heartbeat (setting ``run.lease``).
    :param failures: transient failures before the job is dead (setting ``run.failures``).
    :param cost: seconds that a run is expected to take, for the turns of tenants (``None``: as measured).
    :param using: alias of the database that holds the task's data and ledger (setting ``using``).
    :param comparable: True: the body may run a second time in a transaction that is rolled back,
        for the mode ``compare``; all that it does outside, it does by effects.
    :param compare: takes the result of the site's own run and that of the other; True where they
        are the same, else False or a name for the difference. Without it: equal as JSON.
    :param fallback: True: while the broker is away, ``submit`` may run the job in the web process,
        within the bounds of the settings ``rollout.fallback.*``.
    :param sensitive: names of arguments that only the body is to see: they are ``<hidden>`` in
        Celery's logs and events, and taken out of the texts of errors.
    :raises ImproperlyConfigured: at definition, naming every fault of the declaration.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        # Celery makes the task when an app is finalised; a wrong declaration is told here.
        arguments = list(inspect.signature(function).parameters)[bool(options.get("bind")) :]
        given = {name: value for name, value in options.items() if name in OPTIONS}
        given |= mark_of(function)
        others = [name for name in options if name not in OPTIONS and not hasattr(Task, name)]
        name = options.get("name") or f"{function.__module__}.{function.__qualname__}"
        declare(str(name), arguments, given, others)
        return cast(Any, shared_task)(base=base, **options)(function)

    return decorate(*args) if args else decorate
