"""The Django app: installs the capture on the default Celery app."""

from __future__ import annotations

from django.apps import AppConfig


class CeleryGuardConfig(AppConfig):
    """``INSTALLED_APPS += ["celery_guard"]`` is all that is needed."""

    name = "celery_guard"
    label = "celery_guard"
    verbose_name = "Celery Guard"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Guard the default Celery app and let the rooms register what they listen to."""
        from celery import current_app
        from django.db.models.signals import post_migrate

        # Imported for what they register: checks, the commit hook, signals, duties, receivers.
        from celery_guard import checks, tasks  # noqa: F401
        from celery_guard.enqueue.canvas import guard_canvas
        from celery_guard.enqueue.install import install
        from celery_guard.outbox.functions import create_without_migrations
        from celery_guard.relay import host, purge, sweep, telling, wake  # noqa: F401
        from celery_guard.run import rescue, strangers  # noqa: F401
        from celery_guard.settle import reconcile  # noqa: F401
        from celery_guard.settle.replay import stepping  # noqa: F401
        from celery_guard.watch import (  # noqa: F401
            counted,
            log,
            pool_share,
            prometheus,
            run_times,
            snapshot,
        )

        guard_canvas()
        post_migrate.connect(create_without_migrations, sender=self)
        app = current_app._get_current_object()  # type: ignore[attr-defined]
        install(app)
        tasks.schedule_upkeep(app)
        prometheus.register()
