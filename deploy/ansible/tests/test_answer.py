"""Answers of an edge: each key, type and size that a hostile one could choose."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from deploy.ansible.plugins.module_utils import springtide_answer as answer

TRUTHFUL: dict[str, Any] = {
    "changed": True,
    "report": {"command": "apply", "changed": True, "edge": "ams-1", "routes": 2, "refused": [], "notes": ["a note"]},
}


def test_a_truthful_answer_passes_unchanged() -> None:
    given = json.loads(answer.known(f"\nBECOME-SUCCESS-x\r\n{json.dumps(TRUTHFUL)}\r\n"))
    result = answer.reduced(given, "applied", check=False)
    assert result == {"failed": False, "changed": True, "report": TRUTHFUL["report"] | {"refused_count": 0}}
    looked = answer.reduced({"changed": False, "diff": {"before": "a\n", "after": ""}}, "withdrawn", check=True)
    assert (looked["changed"], looked["diff"]["before"]) == (False, "a\n")


@pytest.mark.parametrize(
    "key",
    [
        "ansible_facts",
        "add_host",
        "add_group",
        "ansible_stats",
        "_ansible_notify",
        "skipped",
        "unreachable",
        "warnings",
        "exception",
        "results",
    ],
)
def test_what_ansible_would_obey_is_left_out(key: str) -> None:
    assert key not in json.loads(answer.known(json.dumps(TRUTHFUL | {key: {"x": 1}})))
    tagged = {"__ansible_type": "_AnsibleTaggedDict", "value": {key: 1}, "tags": []}
    assert json.loads(answer.known(json.dumps(tagged))) == {}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"changed": True},
        {"changed": "yes", "report": {"command": "apply", "changed": "yes"}},
        {"changed": 1, "report": {"command": "apply", "changed": 1}},
        {"changed": True, "report": {"command": "apply", "changed": False}},
        {"changed": True, "report": {"command": "withdraw", "changed": True}},
        {"changed": True, "report": [1]},
        {"changed": True, "skipped": True, "report": None},
    ],
)
def test_anything_but_a_valid_answer_is_a_failure(given: dict[str, Any]) -> None:
    result = answer.reduced(given, "applied", check=False)
    assert (result["failed"], result["changed"], result["holds"]) == (True, False, False)


def test_a_failure_has_a_bounded_printable_reason_and_a_code() -> None:
    result = answer.reduced(
        {"failed": 1, "msg": "\x1b[2J\x9b" + "x" * 9000, "refusal": "2", "holds": 1}, "applied", check=False
    )
    assert result["msg"].startswith("\\x1b[2J\\x9bxx")
    assert len(result["msg"]) < 3000
    assert (result["refusal"], result["holds"]) == (1, False)
    assert (
        answer.reduced({"failed": True, "msg": "m", "refusal": 13, "holds": True}, "applied", check=False)["refusal"]
        == 13
    )


def test_reports_are_of_bounded_size() -> None:
    report = {
        "command": "apply",
        "changed": True,
        "routes": True,
        "edge": 5,
        "evil": "x",
        "notes": ["\u202e" * 9] * 2000,
    }
    report["refused"] = [{"prefix": "y" * 9000, "reason": None, "more": 1}] * 2000 + ["no mapping"]
    kept = answer.reduced({"changed": True, "report": report}, "applied", check=False)["report"]
    assert sorted(kept) == ["changed", "command", "notes", "refused", "refused_count"]
    assert (len(kept["refused"]), kept["refused_count"], len(kept["notes"])) == (1000, 2001, 1000)
    assert sorted(kept["refused"][0]) == ["prefix", "reason"]
    assert "\u202e" not in kept["notes"][0]


def test_every_text_of_a_module_is_printable_and_of_its_type() -> None:
    evil = "\x1b[2J"
    content = base64.b64encode(evil.encode()).decode()
    given: dict[str, Any] = {
        "stdout": evil,
        "stderr": [evil],
        "rc": "0",
        "failed": "no",
        "changed": "yes",
        "encoding": "base64",
    }
    given |= {"stat": {evil: [evil], "__ansible_type": "x"}, "diff": {"before": 5, "after": evil}, "content": content}
    shown = "\\x1b[2J"
    assert json.loads(answer.known(json.dumps(given))) == {
        "stdout": shown,
        "failed": True,
        "stat": {shown: [shown]},
        "diff": {"after": shown},
        "encoding": "base64",
        "content": base64.b64encode(shown.encode()).decode(),
    }


@pytest.mark.parametrize("text", ["", "[[1]]", '{"a":' * 100_000, '{"changed": 1' + "0" * 5000 + "}", "{" * 20_000_000])
def test_output_that_is_not_json_becomes_a_short_text(text: str) -> None:
    given = answer.known(text)
    assert len(given) < 3000
    assert not set("{[") & set(given)
