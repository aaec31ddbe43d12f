"""What tests share: servers, processes, waiting. The fixtures are gathered in `tests/conftest.py`."""
