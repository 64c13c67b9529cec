"""`binlog-server monitoring`: alert rules for Prometheus, a dashboard for Grafana."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json

from binlog_server.metrics import monitoring

_MADE: Final = {"rules": monitoring.rules, "dashboard": monitoring.dashboard}


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "monitoring", help="print alert rules for Prometheus, or a dashboard for Grafana"
    )
    parser.add_argument("what", choices=list(_MADE), help="which of both")
    add_json(parser, "the rules, too, as JSON: Prometheus takes them so")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if arguments.json:
        made = monitoring.rule_groups()
        show_json(made if arguments.what == "rules" else json.loads(monitoring.dashboard()))
        return 0
    sys.stdout.write(_MADE[arguments.what]())
    return 0
