"""Kills real processes at named points and at random moments, and counts from outside what survives.

`scripts/chaos --kills 200 --seed 7 --pair postgres-redis` starts servers of its own, two workers,
two relays, beat, a till that places orders, and a provider that counts. Whatever dies is started
again. At the end every order must have each of its business rows once, and every charge must have
been applied once.
"""
