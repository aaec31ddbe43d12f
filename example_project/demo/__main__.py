"""``python -m demo``: see :mod:`demo`.

Exit codes: 0 all good; 1 something was lost, done twice or not finished; 2 it could not be set up;
130 interrupted.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from demo.interrupt import listen
from demo.play import Story, play
from demo.programs import SetUpError
from demo.serve import serve
from demo.stage import stage
from demo.table import as_json, show
from demo.voice import Voice


def main() -> int:
    """Run the demo and return its exit code."""
    options = _options()
    voice = Voice()
    # A terminated demo tidies up just as an interrupted one does.
    listen()
    home = Path(tempfile.mkdtemp(prefix="celery-guard-demo-"))
    good = False
    try:
        good = _run(options, voice, home)
    except SetUpError as error:
        voice.say(f"The demo could not be set up: {error}")
        return 2
    except KeyboardInterrupt:
        voice.say("Interrupted; everything is stopped.")
        return 130
    finally:
        if good:
            shutil.rmtree(home, ignore_errors=True)
        else:
            voice.say(f"Logs of every process: {home}")
    return 0 if good else 1


def _run(options: argparse.Namespace, voice: Voice, home: Path) -> bool:
    with stage(home, voice) as on:
        story = play(on, voice, orders=options.orders, seed=options.seed)
        _tell(story, as_line=options.json)
        if options.serve:
            serve(on, voice)
        return story.good


def _tell(story: Story, *, as_line: bool) -> None:
    show(story, Console(highlight=False))
    if as_line:
        print(as_json(story), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="The example shop on real parts: orders over HTTP, a killed worker, "
        "a wiped broker, and everything counted from the outside.",
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--serve", action="store_true", help="leave the site running until Ctrl-C")
    parser.add_argument("--orders", type=_positive, default=120, help="how many orders (120)")
    parser.add_argument("--seed", type=int, default=1, help="what is ordered and which day is bad")
    return parser.parse_args()


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
