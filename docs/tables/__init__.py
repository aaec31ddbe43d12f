"""The reference tables of these pages, made from the code.

A page holds a table between two comments::

    <!-- table: states -->
    …
    <!-- end of table -->

``python -m docs.tables`` rewrites what is between them on every page; a contract test fails
while a page and the code differ.
"""
