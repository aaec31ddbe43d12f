"""The reference tables are the code's own."""

import pytest

from docs.tables.pages import TABLES, pages, placed, renewed
from tests.kit.ground import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_tables_are_as_the_code_has_them(page):
    """A setting, option, state or metric that changes changes its page: `python -m docs.tables`."""
    assert page.read_text() == renewed(page.read_text()), f"python -m docs.tables ({ROOT})"


def test_every_table_is_on_a_page():
    """What can be listed is listed: no section of settings and no command is left out."""
    assert placed() == set(TABLES)
