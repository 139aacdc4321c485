"""An example of each command, which its help ends with."""

from __future__ import annotations

from typing import Final

import click

EXAMPLES: Final = {
    "init": "evalcore init evals --format test-file --name quickstart",
    "import": "evalcore import promptfooconfig.yaml --out support.eval.yaml",
    "validate": "evalcore validate suites/*.eval.yaml",
    "plan": "evalcore plan support.eval.yaml",
    "schema": "evalcore schema test-file > test-file.schema.json",
    "run": "evalcore run support.eval.yaml --case refund --reuse",
    "record": "evalcore record support.eval.yaml",
    "view": "evalcore view --open",
    "report": "evalcore report latest --html --output report.html",
    "compare": "evalcore compare last-pass latest",
    "runs cancel": "evalcore runs cancel 20260518T100000Z-0a1b2c",
    "runs delete": "evalcore runs delete 20260518T100000Z-0a1b2c --yes",
    "runs list": "evalcore runs list --suite support --limit 10",
    "runs show": "evalcore runs show latest",
    "runs verify": "evalcore runs verify latest",
    "runs watch": "evalcore runs watch latest",
    "history rebuild": "evalcore history rebuild",
    "history show": "evalcore history show support --flaky",
    "history sync": "evalcore history sync",
    "query": 'evalcore query "SELECT suite, count(*) FROM runs GROUP BY suite"',
    "regrade": "evalcore regrade latest support.eval.yaml",
    "annotate": "evalcore annotate latest --as ada",
    "annotations agreement": "evalcore annotations agreement latest",
    "annotations export": "evalcore annotations export latest labels.jsonl",
    "annotations import": "evalcore annotations import labels.jsonl",
    "judge calibrate": "evalcore judge calibrate labels.jsonl --suite support.eval.yaml",
    "assert": "evalcore assert --format test-file < outputs.jsonl",
    "decide": "evalcore decide < gates.jsonl",
    "baseline clear": "evalcore baseline clear support",
    "baseline list": "evalcore baseline list",
    "baseline set": "evalcore baseline set support last-pass",
    "baseline show": "evalcore baseline show support",
    "quarantine add": "evalcore quarantine add refund --until 2027-01-31 --owner ada",
    "quarantine list": "evalcore quarantine list",
    "quarantine remove": "evalcore quarantine remove refund",
    "dataset diff": "evalcore dataset diff support@1 support@2",
    "dataset drop": "evalcore dataset drop support@1 --yes",
    "dataset import": "evalcore dataset import tickets.csv --as support",
    "dataset list": "evalcore dataset list",
    "dataset pin": "evalcore dataset pin support@2",
    "dataset promote": "evalcore dataset promote support --all",
    "dataset show": "evalcore dataset show support",
    "recordings delete": "evalcore recordings delete 4f1c9a",
    "recordings export": "evalcore recordings export recordings --run latest",
    "recordings import": "evalcore recordings import recordings",
    "recordings list": "evalcore recordings list",
    "recordings show": "evalcore recordings show 4f1c9a",
    "workspaces clean": "evalcore workspaces clean",
    "workspaces list": "evalcore workspaces list",
    "compact": "evalcore compact",
    "serve": "evalcore serve --database sqlite:///evals.db",
    "serve migrate": "evalcore serve --database sqlite:///evals.db migrate",
    "evals create": "evalcore evals create eval.json",
    "evals delete": "evalcore evals delete 0198c2f0",
    "evals export": "evalcore evals export support --output support.eval.yaml",
    "evals get": "evalcore evals get 0198c2f0",
    "evals import": "evalcore evals import support.eval.yaml --dry-run",
    "evals list": "evalcore evals list support",
    "evals results": "evalcore evals results 0198c2f0",
    "evals run": "evalcore evals run support --wait",
    "evals update": "evalcore evals update 0198c2f0 eval.json",
    "mcp": "evalcore mcp --server http://127.0.0.1:8321",
    "tokens create": "evalcore tokens create nightly --days 90",
    "tokens list": "evalcore tokens list",
    "tokens revoke": "evalcore tokens revoke 0198c2f0",
    "deploy": "evalcore deploy --pool evals --suites suites",
    "dev": "evalcore dev",
}
"""The examples by the words of the command, in the order of `evalcore --help`."""


def with_examples(command: click.Command, path: str) -> click.Command:
    """Return the command, its help and that of the commands below it ended by their examples."""
    example = EXAMPLES.get(path)
    if example is not None and not command.epilog:
        command.epilog = f"Example:\n\n\b\n  {example}"
    if isinstance(command, click.Group):
        for name, member in command.commands.items():
            with_examples(member, f"{path} {name}")
    return command
