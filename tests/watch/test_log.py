"""Events as log lines."""

from __future__ import annotations

import logging

import pytest

from celery_guard.events import emit


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test before this one may have configured logging, which silences loggers that exist.
    logger = logging.getLogger("celery_guard")
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "propagate", True)


def test_an_event_is_one_line_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    """``room.what name=value``, at the event's level, under the one logger."""
    with caplog.at_level(logging.INFO, logger="celery_guard"):
        emit("relay.published", logging.WARNING, lane="high", count=3)
    (record,) = (r for r in caplog.records if r.name == "celery_guard")
    assert record.getMessage() == "relay.published lane=high count=3"
    assert record.levelno == logging.WARNING
    assert record.guard == {"lane": "high", "count": 3}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("two\nlines", r"'two\nlines'"),
        ("two words", "'two words'"),
        ("a=b", "'a=b'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("", "''"),
        ("plain-text:1", "plain-text:1"),
        (None, "None"),
    ],
)
def test_a_fact_can_forge_neither_line_nor_fact(
    caplog: pytest.LogCaptureFixture, value: object, printed: str
) -> None:
    """Whatever a key, an error or a queue's name holds."""
    with caplog.at_level(logging.INFO, logger="celery_guard"):
        emit("room.what", key=value)
    assert f"room.what key={printed}" in caplog.messages


def test_nothing_is_formatted_that_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    """A debug event costs its level's check."""

    class Never:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    with caplog.at_level(logging.INFO, logger="celery_guard"):
        emit("room.what", logging.DEBUG, key=Never())
    assert not caplog.messages
