"""``--serve``: leaving the site open after the story."""

import signal

from demo.stage import Stage
from demo.voice import Voice


def serve(on: Stage, voice: Voice) -> None:
    """Say where the site and the admin are, and keep everything running until Ctrl-C."""
    address = f"http://127.0.0.1:{on.web_port}/"
    voice.say(f"The shop:  {address}")
    voice.say(f"The admin: {address}admin/  user admin, password {on.password}")
    voice.say("Ctrl-C ends it all.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        voice.say("Closing.")
