"""The doctor: looks at a running site from the outside and says what is wrong with it.

In: the site's settings, databases, broker, workers. Out: findings, each with the line that mends
it. It changes nothing, but for one canary job through each lane. A part that can't be looked at
is a finding, never a traceback.
"""
