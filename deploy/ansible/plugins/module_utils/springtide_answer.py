"""Limits an edge's answers to the publisher: known keys of known types, bounded size, printable. Standard library.

Whoever is root on an edge chooses every byte of its answers, and Ansible obeys some keys of a result (facts,
statistics, warnings) and prints others as they are. So only what plays use passes here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from typing import Any, Mapping

# As the edge bounds a bundle: a difference of as many routes is about as long.
MAX_CHARACTERS = 16 * 1024 * 1024
MAX_TEXT = 2000
MAX_ENTRIES = 1000

# Control and format characters, which could move a cursor, colour a terminal, or turn a line around.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)

TEXT, NUMBER, FLAG = (str,), (int,), (bool,)
REPORT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("command", "edge", "pop", "round", "policy_version", "digest", "applied_at", "expires_at"), TEXT),
    **dict.fromkeys(("routes", "added", "replaced", "removed"), NUMBER),
    **dict.fromkeys(("changed", "applied", "expired", "in_sync"), FLAG),
    "reason": (str, type(None)),
}
LISTS = {"refused": ("prefix", "reason"), "drift": ("prefix", "wanted", "found")}
COMMANDS = {"applied": ("apply", "preview"), "withdrawn": ("withdraw",), "status": ("status",)}
# Answers of modules that roles and plays use here, and of Ansible's own look for a Python. Nothing that Ansible obeys,
# or makes assumptions of, is among them; `results` and `ansible_stats` of another type end a whole play.
PLAIN: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("changed", "holds", "appears_binary"), FLAG),
    **dict.fromkeys(("rc", "refusal", "size", "uid", "gid"), NUMBER),
    **dict.fromkeys(("msg", "stdout", "stderr", "osrelease_content", "name"), TEXT),
    **dict.fromkeys(("dest", "src", "path", "state", "checksum", "md5sum", "owner", "group", "mode"), TEXT),
    **dict.fromkeys(("report", "stat"), (dict,)),
    "platform_dist_result": (list,),
}


def printable(text: str, most: int = MAX_TEXT) -> str:
    """The text with what a terminal would obey shown as an escape, cut where it is longer than `most` characters."""
    cut = text if len(text) <= most else f"{text[:most]}... ({len(text) - most} characters more)"
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), cut)


def known(output: str) -> str:
    """A module's output with only the keys that are known; else its text, which is then no result."""
    if len(output) > MAX_CHARACTERS:
        return f"answered more than {MAX_CHARACTERS} characters"
    for line in output.split("\n"):
        if not line.startswith("{"):
            continue
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        with contextlib.suppress(RecursionError, ValueError):
            return json.dumps(_plain(answer))
    return printable(output.replace("{", "(").replace("[", "("))


def _plain(answer: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: _shown(answer[key]) for key, kinds in PLAIN.items() if type(answer.get(key, ...)) in kinds}
    if answer.get("failed"):
        kept["failed"] = True
    if answer.get("encoding") == "base64" and isinstance(answer.get("content"), str):
        # A file of the host, for `--diff`: Ansible prints its content.
        content = base64.b64decode(answer["content"].encode("ascii", "replace")).decode("utf-8", "replace")
        kept["content"] = base64.b64encode(printable(content, MAX_CHARACTERS).encode()).decode("ascii")
        kept["encoding"] = "base64"
    diffs = answer.get("diff")
    diffs = [each for each in (diffs if isinstance(diffs, list) else [diffs]) if isinstance(each, dict)]
    if diffs:
        kept["diff"] = [_diff(each) for each in diffs]
        kept["diff"] = kept["diff"] if isinstance(answer["diff"], list) else kept["diff"][0]
    return kept


def _diff(answer: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {
        "before": (str, dict),
        "after": (str, dict),
        **dict.fromkeys(("before_header", "after_header", "prepared"), TEXT),
    }
    return {key: _shown(answer[key]) for key, fitting in kinds.items() if type(answer.get(key)) in fitting}


def _shown(value: Any) -> Any:
    """The same, printable, without the keys by which Ansible knows types of its own. Raises RecursionError."""
    if isinstance(value, str):
        return printable(value, MAX_CHARACTERS)
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {_shown(key): _shown(each) for key, each in value.items() if not key.startswith("__ansible")}
    return value


def _report(answer: Mapping[str, Any]) -> dict[str, Any]:
    # bool is an int in Python, but not a number to a reader.
    kept: dict[str, Any] = {
        key: printable(answer[key]) if isinstance(answer[key], str) else answer[key]
        for key, kinds in REPORT.items()
        if type(answer.get(key, ...)) in kinds
    }
    for key, fields in LISTS.items():
        if isinstance(answer.get(key), list):
            entries = [entry for entry in answer[key] if isinstance(entry, dict)]
            kept[key] = [
                {
                    field: None if entry.get(field) is None else printable(str(entry[field])[: MAX_TEXT + 1])
                    for field in fields
                }
                for entry in entries[:MAX_ENTRIES]
            ]
            kept[f"{key}_count"] = len(answer[key])
    if isinstance(answer.get("notes"), list):
        kept["notes"] = [printable(note) for note in answer["notes"][:MAX_ENTRIES] if isinstance(note, str)]
    return kept


def _fails(answer: Mapping[str, Any], why: str) -> dict[str, Any]:
    code = answer.get("refusal")
    refusal = code if type(code) is int and 0 < code < 256 else 1
    return {
        "failed": True,
        "changed": False,
        "msg": printable(why),
        "refusal": refusal,
        "holds": answer.get("holds") is True,
    }


def reduced(answer: Mapping[str, Any], state: str, *, check: bool) -> dict[str, Any]:
    """The module's result from its answer; a failure where that is not a valid answer for `state`."""
    if answer.get("failed"):
        return _fails(answer, str(answer.get("msg") or "the edge gives no reason"))
    report, changed = answer.get("report"), answer.get("changed")
    looked_only = check and state == "withdrawn"
    if looked_only and report is None:
        report = {"command": "withdraw", "changed": changed}
    fits = isinstance(report, dict) and report.get("command") in COMMANDS[state] and isinstance(changed, bool)
    if not fits or (state != "status" and report.get("changed") is not changed):  # type: ignore[union-attr]
        return _fails({}, "the edge's answer is not one of springtide_edge; inspect what runs there")
    result: dict[str, Any] = {"failed": False, "changed": changed}
    if not looked_only:
        result["report"] = _report(report)  # type: ignore[arg-type]
    diff = answer.get("diff")
    if isinstance(diff, dict):
        sides = {side: str(diff.get(side, "")) for side in ("before", "after")}
        result["diff"] = {side: printable(text, MAX_CHARACTERS) for side, text in sides.items()}
        result["diff"].update(before_header="table 201", after_header="table 201")
    return result
