"""Celery's own integration tests of canvases, with every task of theirs guarded.

In: the source release of the installed Celery, fetched by ``scripts/canvas``. Out: which of its
tests pass, and whether those that don't are the ones that ``known`` names, each with its reason.
"""
