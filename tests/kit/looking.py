"""A thread that looks at something again and again while a test goes on."""

import abc
import threading
from typing import Self

from django.db import connections


class Looking(abc.ABC):
    """Looks every so many seconds until the block ends, and raises there what a look raised.

    A look that dies unseen would leave figures that please every test.
    """

    def __init__(self, every: float) -> None:
        self.looks = 0
        self._every = every
        self._over = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._go_on)

    @abc.abstractmethod
    def look(self) -> None:
        """One look, on the thread's own connections."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _go_on(self) -> None:
        try:
            while not self._over.wait(self._every):
                self.look()
                self.looks += 1
        except BaseException as fault:  # noqa: BLE001 - raised where the block ends
            self._fault = fault
        finally:
            connections.close_all()
