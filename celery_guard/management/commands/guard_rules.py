"""``manage.py guard_rules --slo 99``: rules for Prometheus; ``--grafana``: a dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser

from celery_guard.management.command import GuardCommand
from celery_guard.watch.alerting import Alert, Record
from celery_guard.watch.grafana import grafana
from celery_guard.watch.rules import groups


class Command(GuardCommand):
    """Prints recording and alerting rules as a YAML file for Prometheus, or a Grafana dashboard."""

    help = "Print rules for Prometheus (late queues, dead parts) or a Grafana dashboard."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        parser.add_argument(
            "--slo",
            type=float,
            default=99.0,
            help="per cent of the time in which no job waits past its objective (default: 99)",
        )
        parser.add_argument(
            "--runbook",
            default="",
            help="address of your copy of the page on alerts, for runbook_url (default: none)",
        )
        parser.add_argument(
            "--grafana",
            action="store_true",
            help="print a dashboard for Grafana instead, to be imported as it is",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print.

        :raises CommandError: for an SLO that is no share of time, or leaves no budget.
        """
        if options["grafana"]:
            self.stdout.write(json.dumps(grafana(), indent=2))
            return
        slo = options["slo"]
        if not 50 <= slo < 100:
            raise CommandError(f"--slo is in per cent, at least 50 and below 100, not {slo:g}")
        for line in yaml_of(slo, options["runbook"]):
            self.stdout.write(line)


def yaml_of(slo: float, runbook: str) -> Iterator[str]:
    """The lines of the file. Every text is written as JSON, which YAML holds as it is."""
    yield f"# Made by guard_rules --slo {slo:g}."
    yield "groups:"
    for name, rules in groups(slo).items():
        yield f"- name: {name}"
        yield "  interval: 30s"
        yield "  rules:"
        for rule in rules:
            yield from _rule(rule, runbook)


def _rule(rule: Record | Alert, runbook: str) -> Iterator[str]:
    if isinstance(rule, Record):
        yield f"  - record: {rule.name}"
        yield f"    expr: {json.dumps(rule.expr)}"
        return
    yield f"  - alert: {rule.name}"
    yield f"    expr: {json.dumps(rule.expr)}"
    yield f"    for: {rule.wait}"
    yield "    labels:"
    yield f"      severity: {rule.severity}"
    yield "    annotations:"
    yield f"      summary: {json.dumps(rule.summary)}"
    if runbook:
        yield f"      runbook_url: {json.dumps(f'{runbook}#{rule.anchor}')}"
