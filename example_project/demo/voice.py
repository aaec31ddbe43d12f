"""What the demo says while it works: on a terminal a live line, elsewhere plain lines."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from demo.interrupt import check


class Voice:
    """Says what is going on, on standard error: standard output is for the result."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """A step of unknown length, with the time that it took."""
        check()
        began = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(what):
                yield
        else:
            self.say(f"{what} ...")
            yield
        self.say(f"{what}: {time.monotonic() - began:.1f} s")

    @contextlib.contextmanager
    def count(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A step whose progress can be counted; call what is yielded with the number done."""
        began = time.monotonic()
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
            with Progress(*columns, MofNCompleteColumn(), console=self.console) as bars:
                bar = bars.add_task(what, total=total)
                yield lambda done: bars.update(bar, completed=done)
        else:
            yield self._quarters(what, total)
        self.say(f"{what}: {time.monotonic() - began:.1f} s")

    def _quarters(self, what: str, total: int) -> Callable[[int], None]:
        told = -1

        def tell(done: int) -> None:
            nonlocal told
            check()
            quarter = 4 * done // max(total, 1)
            if quarter > told:
                told = quarter
                self.say(f"{what}: {done} of {total}")

        return tell
