"""The name of a job in a message's header: written in one form, read in two."""

import uuid

import pytest

from celery_guard.jobs.named import NamedJob, named_in

RANDOM = uuid.UUID("0123456789abcdef0123456789abcdef")


def test_what_is_written_is_read_back() -> None:
    """Number and public id, as one text that every broker carries."""
    assert str(NamedJob(7, RANDOM)) == "7/0123456789abcdef0123456789abcdef"
    assert named_in(str(NamedJob(7, RANDOM))) == NamedJob(7, RANDOM)


@pytest.mark.parametrize("header", [7, "7"])
def test_a_number_alone_is_read_too(header: object) -> None:
    """Messages of an earlier release are still in the broker when the workers are upgraded."""
    assert named_in(header) == NamedJob(7)


@pytest.mark.parametrize(
    "header", [None, "", "x", "7/", "7/12", f"7/{RANDOM}", "-7", "7/" + "g" * 32, "٧", True, b"7"]
)
def test_anything_else_names_no_job(header: object) -> None:
    """Such a message is treated as one without the header: its job is found by key or task id."""
    assert named_in(header) is None
