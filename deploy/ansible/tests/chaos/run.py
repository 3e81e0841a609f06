"""One run: a round on the fleet, a move under faults, what then stands; and withdraw.yml under faults of its own."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.ansible.tests.chaos import faults, judge
from deploy.ansible.tests.chaos.fleet import Fleet, Playing
from deploy.ansible.tests.chaos.schedule import Fault, Run

# No play may take longer, whatever hangs: its steps have limits, and there are few of them.
PLAY_STEPS = 6
# withdraw.yml has one step on the edges; connections that hang and Ansible itself have the rest of the time.
BUTTON_STEPS, BUTTON_REST_S = 2, 60
TTL_S = 900
NEAR_EXPIRY_S = 12
# Faults that make an edge go back to the kernel's default by itself, which is always safe and in no journal.
OWN_WITHDRAWAL = (
    "disk full",
    "disk read-only",
    "clock two hours ahead",
    "clock two hours behind",
    "link lost",
    "watcher killed",
    "edge command killed",
    "edge command hangs",
    "no ip program",
    "lock held by a stopped process",
)


@dataclass
class Result:
    """Results of runs: counts of faults that happened, violations as lines, seconds of each withdraw.yml."""

    seed: int
    logs: Path
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    withdraw_s: list[float] = field(default_factory=list)


def step_limit_s(fleet: Fleet) -> int:
    """The time limit of a play's step on an edge, by how long a whole play takes here while nothing is broken."""
    playing = Playing(fleet.farm, "withdraw.yml", {"springtide_reason": "how long does it take?"})
    while not playing.ended():
        time.sleep(0.02)
    if playing.process.returncode != 0:
        raise SystemExit(f"chaos: withdraw.yml fails while nothing is broken: {playing.output}")
    return max(15, 3 * round(playing.took_s or 0))


class Chaos:
    """A run on a fleet."""

    def __init__(self, fleet: Fleet, run: Run, result: Result, step_s: int) -> None:
        self.fleet, self.run, self.result = fleet, run, result
        self.step_s, self.play_limit_s = step_s, PLAY_STEPS * step_s
        self.farm = fleet.farm
        self.begun: dict[Fault, faults.End] = {}
        self.happened: set[Fault] = set()
        self.met: dict[str, set[str]] = {}
        self.publisher_broke = False
        self.published_at = 0.0
        self.plays: list[Playing] = []
        self.logs: list[str] = []

    def violation(self, text: str) -> None:
        self.result.violations.append(f"seed {self.result.seed}, run {self.run.number} ({self.run.move}): {text}")

    # --- plays under faults ------------------------------------------------------------------------------------------

    def play(
        self,
        play: str,
        planned: Sequence[Fault] = (),
        *,
        then: Callable[[Playing], None] = lambda _: None,
        **given: Any,
    ) -> Playing:
        """A play while faults begin and end as planned; it has ended, or was ended, when this returns."""
        playing = Playing(self.farm, play, {**given, "springtide_step_s": self.step_s})
        self.plays.append(playing)
        waiting, brief = sorted(planned, key=lambda fault: fault.after), dict[Fault, float]()
        while not playing.ended():
            if waiting and playing.answers >= waiting[0].after:
                fault = waiting.pop(0)
                if self.begin(fault, playing) and fault.lasts_s is not None:
                    brief[fault] = time.monotonic() + fault.lasts_s
            for fault in [each for each, ends in brief.items() if time.monotonic() > ends]:
                del brief[fault]
                self.begun.pop(fault)()
            then(playing)
            if time.monotonic() - playing.begun > self.play_limit_s:
                self.violation(f"{play} did not end within {self.play_limit_s} s; faults: {self.met}")
                playing.kill()
            time.sleep(0.02)
        self.logs.append(f"== {play} {given}: exit code {playing.process.returncode}\n{playing.output}")
        return playing

    def begin(self, fault: Fault, playing: Playing) -> bool:
        end = faults.begin(fault, self.fleet, playing)
        if end is None:
            return False
        self.begun[fault] = end
        self.happened.add(fault)
        self.result.faults[fault.kind] += 1
        if fault.edge is None:
            self.publisher_broke |= fault.kind != "play killed"
        else:
            self.met.setdefault(fault.edge, set()).add(fault.kind)
        return True

    def heal(self) -> None:
        for fault in list(self.begun):
            self.begun.pop(fault)()

    @contextlib.contextmanager
    def healed_at_last(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.heal()

    # --- the run -----------------------------------------------------------------------------------------------------

    def __call__(self) -> None:
        known = len(self.result.violations)
        with self.healed_at_last():
            self.fleet.hold()
            self.offset = self.size_of_journal()
            self.before = {edge: held.windows for edge, held in self.fleet.held().items()}
            for edge, windows in self.before.items():
                if not windows:
                    self.violation(f"{edge}: did not take the round that the run begins with")
            last = self.move()
            self.heal()
            if not self.fleet.is_idle():
                self.violation("processes of a play ran 60 s after all faults had ended")
            if "run withdraw.yml once more" in last.output:
                last = self.play("withdraw.yml", springtide_reason="chaos, to record it")
                self.publisher_broke = False
            if self.run.move == "near expiry":
                time.sleep(max(0.0, self.published_at + NEAR_EXPIRY_S + 1 - time.time()))
            self.fleet.timers()
            self.look(last)
            if self.run.move != "withdrawn in between":
                if last.process.returncode != 0 and self.run.move != "near expiry":
                    self.repair()
                self.button()
        if len(self.result.violations) > known:
            self.result.logs.mkdir(parents=True, exist_ok=True)
            (self.result.logs / f"run-{self.run.number}.log").write_text("\n".join(self.logs))

    def move(self) -> Playing:
        move, during = self.run.move, self.run.during
        if move == "rollback":
            self.publish()
            first = self.play("rollout.yml")
            if first.process.returncode != 0:
                self.violation("a rollout that met no fault failed")
            return self.play("rollback.yml", during, springtide_reason="chaos")
        self.publish(NEAR_EXPIRY_S if move == "near expiry" else TTL_S)
        if move == "rollback of what was not rolled out":
            return self.play("rollback.yml", during, springtide_reason="chaos")
        if move == "withdrawn in between":
            return self.withdrawn_in_between()
        script = f"case $wave in {self.run.refused_wave}) echo no; exit 4;; esac; exit 0"
        gate = self.farm.script(script if move == "refused by the gate" else "exit 0")
        return self.play("rollout.yml", during, springtide_gate=True, springtide_gate_command=gate)

    def publish(self, ttl: float = TTL_S) -> None:
        self.published_at = time.time()
        self.farm.publish(self.fleet.documents(ttl=ttl))

    def withdrawn_in_between(self) -> Playing:
        pressed: list[Playing] = []

        def press(playing: Playing) -> None:
            if playing.answers >= 10 and not pressed:
                given = {"springtide_reason": "chaos", "springtide_step_s": self.step_s}
                pressed.append(Playing(self.farm, "withdraw.yml", given))

        first = self.play("rollout.yml", self.run.during, then=press)
        if not pressed:
            return self.play("withdraw.yml", springtide_reason="chaos")
        while not pressed[0].ended() and time.monotonic() - pressed[0].begun < self.play_limit_s:
            time.sleep(0.05)
        if not pressed[0].ended():
            self.violation(f"withdraw.yml did not end within {self.play_limit_s} s; faults: {self.met}")
            pressed[0].kill()
        self.plays.append(pressed[0])
        self.logs.append(
            f"== withdraw.yml in between, rollout ended with {first.process.returncode}\n{pressed[0].output}"
        )
        return pressed[0]

    # --- what must stand then ----------------------------------------------------------------------------------------

    def size_of_journal(self) -> int:
        path = self.farm.publish_dir / "journal.jsonl"
        return path.stat().st_size if path.exists() else 0

    def sets(self) -> dict[str, list[judge.Published]]:
        return {edge: judge.published(self.farm.publish_dir, edge) for edge in self.fleet.edges}

    def one_set_each(self, found: Mapping[str, judge.Held]) -> None:
        now = time.time()
        for edge, sets in self.sets().items():
            problem = judge.not_one_set(edge, found[edge], sets, now)
            if problem:
                self.violation(f"{problem}; faults: {sorted(self.met.get(edge, ()))}")

    def look(self, last: Playing) -> None:
        found = self.fleet.held()
        self.one_set_each(found)
        code = "was killed" if last.killed else f"ended with {last.process.returncode}"
        wrong: dict[str, list[str]] = {}
        for edge in self.fleet.edges:
            may = self.may_hold(edge, last)
            if found[edge].windows not in may:
                expected = " or ".join(self.called(edge, each) for each in may)
                kinds = sorted(self.met.get(edge, ()))
                text = f"instead of {expected}: {self.called(edge, found[edge].windows)}; its faults: {kinds}"
                wrong.setdefault(text, []).append(edge)
        for text, edges in wrong.items():
            everybodys = sorted({fault.kind for fault in self.happened})
            self.violation(f"{last.play} {code}, and {', '.join(edges)} hold {text}, all faults: {everybodys}")
        self.compare_with_journal(found, last)

    def called(self, edge: str, windows: judge.Windows) -> str:
        """A set by what it is in this run."""
        if not windows:
            return "nothing"
        return {str(self.before[edge]): "the round before", str(self.new(edge)): "the new round"}.get(
            str(dict(windows)), judge.short(windows)
        )

    def new(self, edge: str) -> dict[str, int]:
        return judge.windows_of_file(self.farm.publish_dir / "candidate/edges" / f"{edge}.json")

    def may_hold(self, edge: str, last: Playing) -> list[judge.Windows]:
        """By the play's output at its end, without the journal."""
        new, old = self.new(edge), self.before[edge]
        gone = edge in self.met and self.met[edge] & set(OWN_WITHDRAWAL)
        safe: list[judge.Windows] = [{}] if gone else []
        move = self.run.move
        if move == "near expiry":
            return [old, new, {}]
        if move == "withdrawn in between":
            named = edge in self.named(last)
            return [{}, old, new] if named or last.killed else [{}]
        if move == "rollback of what was not rolled out":
            # The fleet has the round before it, and before that there was nothing.
            undone: judge.Windows = {}
            return [undone] if last.process.returncode == 0 else [undone, old]
        if last.killed or (edge in self.met and last.process.returncode != 0):
            return [old, new, *safe]
        if move == "rollback":
            # Its lock needs the publisher's disk; without it nothing begins, and withdraw.yml is what is left.
            return [old, *safe, *([new] if self.publisher_broke and last.process.returncode != 0 else [])]
        return [new if last.process.returncode == 0 else old, *safe]

    def named(self, playing: Playing) -> set[str]:
        """Edges that withdraw.yml reports as not emptied."""
        lists = re.findall(r"NOT (?:confirmed as )?withdrawn: ([^;\n]*)", playing.output)
        return {edge for edge in self.fleet.edges for text in lists if edge in text.split(", ")}

    def compare_with_journal(self, found: Mapping[str, judge.Held], last: Playing) -> None:
        """The journal compared with the kernels."""
        lines, damaged = judge.journal(self.farm.publish_dir, self.offset)
        broke = self.publisher_broke
        if damaged and not broke and not any(playing.killed for playing in self.plays):
            self.violation(f"{damaged} lines of the journal cannot be read")
        event = last.play.removesuffix(".yml")
        recorded = [(line["event"], line["verdict"]) for line in lines]
        if last.process.returncode == 0 and (event, "done") not in recorded:
            self.violation(f"{last.play} ended with 0, and the journal does not have it: {recorded}")
        if last.process.returncode != 0 and (event, "done") in recorded and not last.killed and not broke:
            self.violation(f"{last.play} ended with {last.process.returncode}, and the journal has done")
        if broke and last.process.returncode != 0:
            return
        may = judge.allowed_sets(lines, self.fleet.edges, self.sets(), self.before)
        wrong: dict[str, list[str]] = {}
        for edge in self.fleet.edges:
            windows = found[edge].windows
            gone = not windows and (self.run.move == "near expiry" or edge in self.met)
            if windows not in may[edge] and not gone:
                expected = " or ".join(self.called(edge, each) for each in may[edge])
                wrong.setdefault(f"{expected}: {self.called(edge, windows)}", []).append(edge)
        for text, edges in wrong.items():
            self.violation(f"{', '.join(edges)} hold instead of the journal's state, {text}: {recorded}")

    def repair(self) -> None:
        """With nothing broken any more, drift.yml brings every edge to the publisher's state.

        Where a way back could not be recorded, rollback.yml comes first, once more.
        """
        if any("run rollback.yml once more" in playing.output for playing in self.plays):
            self.play("rollback.yml", springtide_reason="chaos, to record it")
        offset = self.size_of_journal()
        repaired = self.play("drift.yml", springtide_repair=True, springtide_resume=True)
        found = self.fleet.held()
        for edge in self.fleet.edges:
            want = judge.wanted(self.farm.publish_dir, edge)
            if found[edge].windows != want:
                has, should = judge.short(found[edge].windows), judge.short(want)
                self.violation(
                    f"drift.yml ended with {repaired.process.returncode}, and {edge} holds {has}, not {should}"
                )
        recorded = [(line["event"], line["verdict"]) for line in judge.journal(self.farm.publish_dir, offset)[0]]
        if repaired.process.returncode != 0 or recorded not in ([("drift", "repaired")], [("drift", "none")]):
            self.violation(f"drift.yml ended with {repaired.process.returncode} where nothing is broken: {recorded}")

    # --- withdraw.yml ----------------------------------------------------------------------------------------------

    def button(self) -> None:
        self.met, self.publisher_broke, offset = {}, False, self.size_of_journal()
        playing = self.play("withdraw.yml", self.run.button, springtide_reason="chaos")
        if playing.killed:
            playing = self.play("withdraw.yml", springtide_reason="chaos, again")
        took = playing.took_s or 0.0
        self.result.withdraw_s.append(took)
        bound = BUTTON_STEPS * self.step_s + BUTTON_REST_S
        if took > bound:
            self.violation(f"withdraw.yml took {took:.0f} s, more than {bound} s; faults: {self.met}")
        named = self.named(playing)
        self.all_gone(self.fleet.held(), named, "after withdraw.yml")
        for edge in named - set(self.met):
            self.violation(f"withdraw.yml names {edge}, which met no fault")
        lines, _ = judge.journal(self.farm.publish_dir, offset)
        presses = [line for line in lines if line["event"] == "withdraw"]
        if not presses and (playing.process.returncode == 0 or not self.publisher_broke):
            self.violation(f"withdraw.yml ended with {playing.process.returncode}, and it is not in the journal")
        if presses and set(presses[-1]["details"].get("not", ())) != named:
            self.violation(f"the journal has {presses[-1]['details']}, withdraw.yml {sorted(named)}")
        # While all faults last: timers, and for edges that were not reached the end of their bundle.
        self.fleet.timers(sorted(set(self.met) - named))
        for edge in sorted(named):
            code, output = self.fleet.command(edge, "expire", seconds_later=TTL_S + 60)
            if self.fleet.held([edge])[edge].windows:
                self.violation(
                    f"{edge}: `expire` after the bundle's end: exit code {code}: {output}: it keeps its routes"
                )
        self.heal()
        self.fleet.is_idle()
        self.fleet.timers(sorted(self.met))
        self.all_gone(self.fleet.held(), set(), "once nothing was broken any more")

    def all_gone(self, found: Mapping[str, judge.Held], but: set[str], when: str) -> None:
        for edge, held in found.items():
            if edge not in but and (held.windows or held.rules):
                kinds = sorted(self.met.get(edge, ()))
                self.violation(f"{edge} holds {judge.short(held.windows)} {when}; faults: {kinds}")
