"""A watch over the sockets of one thread. Imports neither Django nor the guard."""

import socket
import threading
from collections.abc import Callable
from typing import Any


class Watch:
    """Writes down every TCP address that this thread connects to, or uses a connection of."""

    def __init__(self) -> None:
        self.addresses: set[tuple[Any, ...]] = set()
        self._thread = threading.get_ident()

    def __enter__(self) -> "Watch":
        for name in ("connect", "connect_ex"):
            setattr(socket.socket, name, self._watched(name, own=False))
        for name in ("send", "sendall", "recv", "recv_into"):
            setattr(socket.socket, name, self._watched(name, own=True))
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("connect", "connect_ex", "send", "sendall", "recv", "recv_into"):
            # The methods watched are those of the base class; ours were laid over them.
            delattr(socket.socket, name)

    def _watched(self, name: str, *, own: bool) -> Callable[..., Any]:
        original = getattr(socket.socket, name)

        def call(sock: socket.socket, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == self._thread and sock.family == socket.AF_INET:
                self.addresses.add(tuple(sock.getpeername() if own else args[0]))
            return original(sock, *args, **options)

        return call

    def ports(self) -> set[int]:
        """The ports of the addresses."""
        return {address[1] for address in self.addresses}
