"""The one error of the finder."""


class ServerUnavailable(RuntimeError):
    """A server that is needed can't be had here; the message is one sentence that names the ways out."""
