"""The add-ons that take a lock in Redis when a task is enqueued."""

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.plain import Delay
from benchmarks.place import here


class Once(Delay):
    """celery-once: guards enqueueing, not execution."""

    name = "celery_once"
    package = "celery_once"
    scenarios = frozenset({"enqueue", "worker"})

    def celery_settings(self) -> Mapping[str, Any]:
        settings = {"url": here().redis_url, "default_timeout": 3600}
        return {"ONCE": {"backend": "celery_once.backends.Redis", "settings": settings}}

    def task_options(self) -> Mapping[str, Any]:
        from celery_once import QueueOnce

        return {"base": QueueOnce, "acks_late": True, "once": {"keys": ["order_id"]}}


class Singleton(Delay):
    """celery-singleton: one queued task per arguments."""

    name = "celery_singleton"
    package = "celery_singleton"
    scenarios = frozenset({"enqueue", "worker"})

    def celery_settings(self) -> Mapping[str, Any]:
        return {"singleton_backend_url": here().redis_url}

    def task_options(self) -> Mapping[str, Any]:
        from celery_singleton import Singleton as Base

        return {"base": Base, "acks_late": True}


CONTENDERS = (Once(), Singleton())
