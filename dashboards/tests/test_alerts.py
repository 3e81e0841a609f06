"""Alert rules: promtool takes and tests them, their metrics exist, and each has a runbook whose commands exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from springtide.cli import cli
from springtide.laws.registry import METRICS

from tools import reference

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "dashboards/prometheus"
RUNBOOKS = ROOT / "docs/runbooks"
PROMTOOL = ROOT / "target/tools/promtool"
BINARIES = {name: ROOT / "target/release" / name for name in ("springtide-collector", "springtide-edge")}
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "springtide.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
NAMES = [str(rule["alert"]) for rule in RULES]


def promtool(*arguments: str) -> None:
    done = subprocess.run([PROMTOOL, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", "springtide.rules.yml")


def test_every_alert_fires_where_it_should_and_nowhere_else() -> None:
    promtool("test", "rules", "springtide.test.yml")
    tests = yaml.safe_load((PROMETHEUS / "springtide.test.yml").read_text())["tests"]
    outcomes = {
        name: [bool(e.get("exp_alerts")) for t in tests if t["name"] == name for e in t["alert_rule_test"]]
        for name in NAMES
    }
    for name, fired in outcomes.items():
        assert sorted(set(fired)) == [False, True], f"{name} is not tested both ways"


def test_every_alert_has_a_summary() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"].endswith("."), rule["alert"]
        address = f"{{{{ reReplaceAll `NAME` `{rule['alert']}` $externalLabels.springtide_docs }}}}"
        assert rule["annotations"]["runbook_url"] == address


def test_every_metric_of_an_alert_or_a_dashboard_is_one_that_is_made() -> None:
    """The collector and the edge name theirs; the controller has METRICS."""
    made = {name.partition("{")[0] for name, _, _ in reference.collector_metrics()}
    made |= set(METRICS)
    made |= set(re.findall(r"^  (springtide_edge_\w+)", reference.output("springtide-edge", "watch", "--help"), re.M))
    used = set(re.findall(r"springtide_\w+", "\n".join(str(rule["expr"]) for rule in RULES)))
    for path in (ROOT / "dashboards/json").glob("*.json"):
        used |= set(re.findall(r"springtide_(?:collector|edge)_\w+", path.read_text()))
    used = {name.removesuffix("_bucket") for name in used}
    assert len(used) > 20
    assert used <= made, used - made


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*NAMES, "index"}
    index = (RUNBOOKS / "index.md").read_text()
    assert re.findall(r"\[(\w+)\]\(\1\.md\)", index) == NAMES
    for name in NAMES:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert re.findall(r"^#+ (.*)$", text, re.M) == [name, "What it means", "Look", "Do"]


def commands(text: str) -> list[list[str]]:
    """The commands of our programs, in blocks and in backticks; without what they are piped into."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(
        r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)
    )
    words = [shlex.split(line.split("|")[0]) for line in lines if re.match(r"springtide(-collector|-edge)? ", line)]
    return [found for found in words if len(found) > 1]


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_a_runbook_exist(name: str) -> None:
    for program, *words in commands((RUNBOOKS / f"{name}.md").read_text()):
        if program in BINARIES:
            done = subprocess.run([BINARIES[program], words[0], "--help"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, words
            assert all(word in done.stdout for word in words[1:] if word.startswith("--")), words
            continue
        command: click.Command = cli
        context = click.Context(cli)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, f"{name}: {words}"
            command = found
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, f"{name}: {command.name} {words}"
        if command.name == "sql" and words:
            assert (ROOT / f"sql/analysis/{words[0]}.sql").exists(), words


def test_runbooks_name_commands_at_all() -> None:
    assert sum(len(commands((RUNBOOKS / f"{name}.md").read_text())) for name in NAMES) > 30


def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_promtool_takes_every_query_of_the_dashboards(tmp_path: Path) -> None:
    """As recording rules, with the interval that Grafana would put in."""
    expressions = [
        target["expr"].replace("$__rate_interval", "1m")
        for path in sorted((ROOT / "dashboards/json").glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", [])
        if "expr" in target
    ]
    assert len(expressions) >= 10
    rules = [{"record": f"springtide:panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))
    file.write_text(file.read_text().replace("histogram_quantile(", "histogram_quantile((", 1))
    with pytest.raises(AssertionError):
        promtool("check", "rules", str(file))
