"""The management commands and their options, as the commands' own parsers have them."""

import argparse
import functools
import pkgutil
from collections.abc import Callable

from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from celery_guard.management import commands
from docs.tables.markdown import code, table


def names() -> list[str]:
    """The commands this project brings."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def options(name: str) -> dict[str, argparse.Action]:
    """The options that are the command's own, by their first spelling."""
    command = load_command_class("celery_guard", name)
    own = command.create_parser("manage.py", name)._actions
    inherited = {a.dest for a in BaseCommand().create_parser("manage.py", name)._actions}
    return {_spelling(a): a for a in own if a.dest not in inherited}


def _spelling(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else action.dest


def _commands() -> list[str]:
    rows = ((code(name), load_command_class("celery_guard", name).help) for name in names())
    return table(("command", "what it does"), rows)


def _options_of(name: str) -> list[str]:
    rows = ((code(_form(s, a)), a.help or "") for s, a in options(name).items())
    return table(("option", "meaning"), rows)


def _form(spelling: str, action: argparse.Action) -> str:
    if action.nargs == 0:
        return spelling
    return f"{spelling} {action.metavar or action.dest.upper()}"


TABLES: dict[str, Callable[[], list[str]]] = {
    "commands": _commands,
    **{f"command {name}": functools.partial(_options_of, name) for name in names()},
}
