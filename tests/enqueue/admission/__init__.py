"""Admission: places, limits, pressure."""
