"""How the pages are built: ``sphinx-build -W -b html docs .cache/docs``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import celery_guard
from docs.tables.ground import set_up

set_up()

project = "celery-guard"
author = "The celery-guard authors"
copyright = "The celery-guard authors"  # noqa: A001
version = release = celery_guard.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["tables"]
myst_enable_extensions = ["deflist"]
# Deep enough for links such as `errors.md#keybusy`.
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"celery-guard {version}"
html_copy_source = False
