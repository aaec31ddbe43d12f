"""The shop whose requests and jobs are measured."""
