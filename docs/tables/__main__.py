"""``python -m docs.tables``: write the reference tables anew."""

from docs.tables.ground import set_up

set_up()

from docs.tables.pages import pages, renewed  # noqa: E402

for page in pages():
    page.write_text(renewed(page.read_text("utf-8")), "utf-8")
