"""Make the outside world agree: what a body asks of a provider happens there once.

In: a body's wish (``job.effect``). Out: one durable row per job, name and item, written *before*
the provider is called, and the provider's answer, kept for every later attempt. What can go
wrong: the answer never comes. Then nothing is sent again blindly: the same key is used while the
provider remembers it, or the provider is asked first, or a person decides.
"""
