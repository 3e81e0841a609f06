"""Whether a rollout goes on after a wave: what its edges answered, and the verdict of the gate's command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence

from .journal import Event

# A gate waits for the store for a minute or two; one that answers nothing for longer has refused.
GATE_LIMIT_S = 600


def applied(answer: object) -> bool:
    """Whether an edge answered plainly that it holds what it was given; anything else is a refusal."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("changed"), bool):
        return False
    return not any(answer.get(word, False) for word in ("failed", "unreachable", "skipped"))


def not_pulled(answers: Mapping[str, object]) -> str:
    """Why a wave is not cleared whose edges fetch their bundles by themselves, by the answers of those that were asked
    to apply the bundle some time after; empty where nothing is against it. An edge that is away holds up nobody, one
    that refuses the bundle does, and so does a wave of which most had not taken it."""
    known = {edge: answer for edge, answer in answers.items() if isinstance(answer, Mapping)}
    away = [edge for edge in answers if known.get(edge, {}).get("unreachable", edge not in known)]
    refused = [edge for edge in answers if edge not in away and not applied(known[edge])]
    late = [edge for edge in known if edge not in away and known[edge].get("changed") is True]
    if refused:
        return f"not applied on {', '.join(refused)}"
    if 2 * len(away + late) > len(answers):
        named = ", ".join(sorted(away + late))
        return f"most edges that were asked had not fetched their bundles: {named}; see `springtide-edge pull` there"
    return ""


def last_rollout(events: Iterable[Event], publication: str) -> list[Event]:
    """The events of a publication's last rollout. A run that continues one that was killed belongs to it."""
    own = [event for event in events if event.publication == publication]
    begun, over = 0, True
    for number, event in enumerate(own):
        if event.event == "rollback" or (event.event == "rollout" and event.verdict != "begun"):
            over = True
        elif event.event == "rollout" and over:
            begun, over = number, False
    return own[begun:]


def cleared(events: Iterable[Event], publication: str) -> set[str]:
    """Edges whose wave was cleared, and that nothing has changed since."""
    found: set[str] = set()
    for event in events:
        if event.event in ("rollback", "withdraw", "drift"):
            found.difference_update(event.edges)
        elif (event.event, event.publication) == ("cleared", publication):
            found.update(event.edges)
    return found


def run_gate(command: Sequence[str], tries: int, delay_s: float, limit_s: float = GATE_LIMIT_S) -> str:
    """Empty where the gate's verdict is go (exit code 0), else its first line. 3 is tried again, so many times."""
    for left in range(max(0, tries), -1, -1):
        try:
            gate = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"nothing: {command[0]}: {error.strerror}"
        try:
            output, errors = gate.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"nothing for {limit_s} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(gate.pid, signal.SIGKILL)
        if gate.returncode == 0:
            return ""
        lines = (output + b"\n" + errors).decode("utf-8", "replace").split("\n")
        if gate.returncode != 3 or not left:
            break
        time.sleep(delay_s)
    return next((line for line in lines if line.strip()), f"nothing, with exit code {gate.returncode}")
