"""``python -m tests.run.serving NAME``: a web process that submits one job of ``served``."""

import sys

import django

if __name__ == "__main__":
    django.setup()
    from tests.run.served import served

    served.submit(sys.argv[1])
