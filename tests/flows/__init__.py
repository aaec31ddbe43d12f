"""Whole ways of a job, with real worker and relay processes that are killed on the way."""
