"""The code on the pages is code."""

import ast
import importlib

import pytest

from tests.contracts.pages import Block, blocks, pages

PYTHON = [block for page in pages() for block in blocks(page, "python")]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_code_compiles(block: Block):
    """Every Python block can be pasted: it compiles as it stands."""
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_what_is_imported_from_the_package_is_there(block: Block):
    """No page imports a name of this project that it hasn't got."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("celery_guard"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block}: {alias.name}"


def test_languages_are_known():
    """Each block says what it is, so that it is checked, coloured and copied as that."""
    known = {"python", "sh", "text"}
    strange = [
        str(block) for page in pages() for block in blocks(page) if block.language not in known
    ]
    assert strange == []
