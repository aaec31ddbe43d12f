"""A small shop: orders come in over HTTP, all that follows is a guarded job.

In: ``POST /orders/`` (:mod:`shop.views`) writes the order and its jobs in one transaction
(:mod:`shop.orders`). Out: an invoice, a mail, a charge, a search row and a thumbnail
(:mod:`shop.tasks`). What can go wrong outside is told apart in :mod:`shop.payments` and
:mod:`shop.mail`.
"""
