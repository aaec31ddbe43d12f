"""The demo: the shop on real parts, with kills and lost answers, counted from the outside.

``python -m demo`` brings up its own servers and processes (:mod:`demo.stage`), sends orders over
HTTP (:mod:`demo.clients`) while things go wrong (:mod:`demo.chaos`), waits until all is settled
(:mod:`demo.settle`) and prints what the outside saw (:mod:`demo.witness`, :mod:`demo.tally`,
:mod:`demo.table`). Nothing it started outlives it (:mod:`demo.programs`).
"""
