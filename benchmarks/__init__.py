"""This project measured beside what a user would pick instead, in one interleaved run.

`table` holds the rows and their bars as data, `rows/` measures them, `scenarios/` says what one
measurement does, `contenders/` who takes part, `turns` who runs when, `spread` the arithmetic of
ratios and quartiles. `stage` opens the servers and ends everything it opened.
"""
