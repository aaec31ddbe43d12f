"""Dead letters run again in bulk: chosen once, moved a few at a time, under somebody's name.

In: an operator's wish, as a row. Out: jobs that wait again, and for each of them what became of
it. The duty ``replay`` does the work in small transactions, so whoever dies in between leaves
nothing half done, and the next relay goes on.
"""
