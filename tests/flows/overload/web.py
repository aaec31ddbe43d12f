"""``python -m tests.flows.overload.web PORT THREADS``: the shop's web process."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django


class Pooled(WSGIServer):
    """Answers with so many threads and no more, as web servers do."""

    request_queue_size = 256
    threads: ThreadPoolExecutor

    def process_request(self, request: Any, client_address: Any) -> None:
        """Leave it to the next thread that is free."""
        self.threads.submit(self._answer, request, client_address)

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)


class Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_message(self, *args: Any) -> None:
        """Nothing."""


def main(port: int, threads: int) -> None:
    """Serve until killed."""
    django.setup()
    from django.core.wsgi import get_wsgi_application

    with ThreadPoolExecutor(threads) as pool, Pooled(("127.0.0.1", port), Quiet) as server:
        server.threads = pool
        server.set_app(get_wsgi_application())
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
