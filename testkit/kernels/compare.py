"""The collector's samples beside `ss` of the same guest and moment."""

from __future__ import annotations

import json
import re

# A sample's field, and how `ss -i` writes it.
FIELDS = {"snd_cwnd": r"\bcwnd:(\d+)", "snd_mss": r"\bmss:(\d+)", "bytes_acked": r"\bbytes_acked:(\d+)"}


def as_ss(said: str) -> str:
    """What differs, empty where nothing does, of what a guest printed."""
    lines = [line[5:] for line in said.splitlines() if line.startswith("seen ")]
    if "== ss" not in lines or "== collector" not in lines:
        return "the guest printed no sockets"
    at = lines.index("== ss")
    theirs = {}
    for line in lines[:at]:
        words = line.split()
        if words[0] == "ESTAB":
            theirs[_port(words[3]), _port(words[4])] = line
    ours = {}
    for line in lines[at + 1 : lines.index("== collector")]:
        if not line.startswith("{"):
            return f"the collector says {line}"
        sample = json.loads(line)
        ours[sample["src_port"], sample["dst_port"]] = sample
    if not theirs:
        return "ss shows no connection"
    for ends, line in theirs.items():
        if ends not in ours:
            return f"the collector lacks {ends}"
        for name, form in FIELDS.items():
            value = re.search(form, line)
            if int(value[1] if value else 0) != int(ours[ends].get(name, 0)):
                return f"{name} of {ends} is {ours[ends].get(name)}, ss says {line}"
    return ""


def _port(end: str) -> int:
    return int(end.rpartition(":")[2])
