"""An edge whose root is hostile, or that hangs: its answers reach neither publisher nor terminal, and no play waits for
it."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from testkit.farm import NEW, Farm, Node

pytestmark = pytest.mark.root

# Moves a terminal's cursor and overwrites its text; 0x9b is the same in one character.
ESCAPE = "\x1b[2J\x9b31mall is well\u202e"
# The fields of a module's truthful answers, so that every step of a play accepts it.
FITTING: dict[str, Any] = {
    "changed": True,
    "rc": 0,
    "stdout": "Linux\n/usr/bin/ssh-keygen\n/usr/sbin/ip\npython\n",
    "stat": {"exists": False},
    "report": {"command": "apply", "changed": True},
}


def answers(node: Node, answer: str) -> None:
    """This edge gives the same answer to every command; what it was sent is kept in `received`.

    A file is read to its end, however long that takes. The input of most commands never ends, and nothing comes.
    """
    (node.directory / "answer").write_text(answer)
    read = 'case $SSH_ORIGINAL_COMMAND in "dd of="*) cat;; *) timeout 0.3 cat;; esac'
    node.force(f"{read} >> {node.directory}/received; cat {node.directory}/answer")


def evil(farm: Farm) -> tuple[Path, Path]:
    """A program on the publisher that nobody there runs, and the file that it makes."""
    program, made = farm.directory / "evil", farm.directory / "taken"
    program.write_text(f"#!/bin/sh\ntouch {made}\n")
    program.chmod(0o755)
    return program, made


def test_an_edges_answer_is_printable_data_and_never_executed(farm: Farm) -> None:
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    program, taken = evil(farm)
    here = {"ansible_connection": "local", "ansible_shell_executable": str(program)}
    orders = {
        "ansible_facts": {"springtide_gate_command": [str(program)], "springtide_command": str(program)},
        "add_host": {"host_name": "eu-0", "groups": [], "host_vars": here},
        "ansible_stats": 5,
        "warnings": [ESCAPE],
        "diff": {"before": ESCAPE, "after": ""},
    }
    # The only edge of its region, and the first of its wave: the judge's own steps are run with its variables.
    answers(farm.edges["am-1"], f"{ESCAPE}\n" + json.dumps(FITTING | orders) + f"\n{ESCAPE}\n")
    rolled = farm.play("rollout.yml", "--diff", springtide_gate=True, springtide_gate_tries=1)
    assert not taken.exists(), rolled.output
    assert rolled.code == 2
    # It reports that it went back, as it reported that it applied: drift.yml finds what it holds.
    assert "3 edges are back" in rolled.output
    assert not {"\x1b", "\x9b", "\u202e"} & set(rolled.output)
    assert [farm.edges[name].windows() for name in ("eu-0", "eu-2")] == [before, before]
    assert farm.journal()[-1]["verdict"] == "failed"


def test_an_edges_answer_to_a_role_is_never_executed_and_stops_no_other(tmp_path: Path) -> None:
    with Farm.made(tmp_path, count=2) as farm:
        liar, truthful = farm.edges["eu-0"], farm.edges["am-1"]
        (farm.directory / "secret").write_text("a key of the publisher")
        facts = {"edge_allowed_signers": str(farm.directory / "secret")}
        # Each of these, of another type, ends the whole play where Ansible reads it.
        broken = dict.fromkeys(("ansible_stats", "add_host", "add_group", "warnings", "exception"), 5)
        orders = {"ansible_facts": facts, "results": [5], "msg": ESCAPE, "diff": {"before": ESCAPE, "after": 5}}
        answers(liar, f"{ESCAPE}\n" + json.dumps(FITTING | broken | orders))
        # Whatever the operator's own environment sets.
        refused = farm.play("edges.yml", environment={"ANSIBLE_INJECT_FACT_VARS": "true"})
        assert refused.code == 2
        assert "Ansible makes variables of hosts' facts" in refused.output
        assert not (liar.directory / "received").exists(), "the edge was contacted"
        (truthful.directory / "etc").mkdir()
        begin = ["--start-at-task", "Install the keys that may sign", "--diff"]
        prepared = farm.play("edges.yml", *begin, ansible_ssh_transfer_method="piped")
        received = (liar.directory / "received").read_bytes()
        assert (farm.directory / "publisher.pub").read_bytes().strip() in received, "the play did not get that far"
        assert b"a key of the publisher" not in received
        assert (truthful.directory / "etc/edge").read_text() == "am-1\n", prepared.output
        assert not {"\x1b", "\x9b", "\u202e"} & set(prepared.output)


def children_of_ssh(farm: Farm) -> list[str]:
    """Command lines of ssh in the publisher's namespace that are not a shared connection."""
    found = []
    for pid in Farm.run("ip", "netns", "pids", farm.namespace).split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if words.startswith("ssh ") and "[mux]" not in words:
            found.append(words)
    return found


def test_edges_that_hang_keep_no_other_waiting(tmp_path: Path) -> None:
    """Where a step on an edge that does not hang takes eight seconds as well, it is cut off, and another farm is asked.
    One of such four steps does in three farms with odds of one in a million where one in 400 does; of 54, half of them
    beside two busy processes, the longest took 1.7 s."""
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        with Farm.made(tmp_path / str(number)) as farm:
            if hang(farm):
                return
    raise AssertionError("edges that do not hang were cut off in three farms")


def cut_off(output: str, *names: str) -> bool:
    """Whether one of these edges met the time limit of a step."""
    return any(re.search(rf"^fatal: \[{name}\]: .*Timed out after", output, re.MULTILINE) for name in names)


def hang(farm: Farm) -> bool:
    """False where this says nothing."""
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    # One takes the command and never ends it, answering every keepalive; one takes TCP connections and nothing else.
    farm.edges["am-1"].force("sleep 3600")
    rolled = farm.play("rollout.yml", "--forks", "1", springtide_step_s=8)
    if cut_off(rolled.output, "eu-0", "eu-2"):
        return False
    assert cut_off(rolled.output, "am-1")
    assert rolled.code == 2
    assert "not applied on am-1" in rolled.output
    assert "2 edges are back to what held before; NOT back: am-1" in rolled.output
    assert children_of_ssh(farm) == []
    stopped = farm.edges["eu-0"].sshd
    assert stopped is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        withdrawn = farm.play("withdraw.yml", "--forks", "1", springtide_step_s=8)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    if cut_off(withdrawn.output, "eu-2"):
        return False
    assert withdrawn.code == 2, withdrawn.output
    assert "NOT confirmed as withdrawn: am-1, eu-0" in withdrawn.output
    assert farm.edges["eu-2"].windows() == {}
    assert farm.edges["am-1"].windows() == before
    line = farm.journal()[-1]
    assert (line["event"], line["verdict"], line["edges"]) == ("withdraw", "partial", ["eu-2"])
    assert sorted(line["details"]["not"]) == ["am-1", "eu-0"]
    return True


def test_a_lying_edge_is_found_by_drift_and_only_a_confirmation_counts(farm: Farm) -> None:
    farm.publish()
    # It reports that it applied, and did not; the later check (in check mode) is its own truthful command.
    liar = farm.edges["am-1"]
    (liar.directory / "lie").write_text(json.dumps(FITTING))
    liar.force(
        f'if [ -e {liar.directory}/lied ]; then exec sh -c "$SSH_ORIGINAL_COMMAND"; fi; '
        f"cat > /dev/null; mv {liar.directory}/lie {liar.directory}/lied; cat {liar.directory}/lied"
    )
    # -e NAME=VALUE, as it is documented, gives text.
    rolled = farm.play("rollout.yml", "-e", "springtide_gate=false", "-e", "springtide_validate=no")
    assert rolled.code == 0, rolled.output
    assert [bool(node.windows()) for node in farm.edges.values()] == [True, False, True]
    found = farm.play("drift.yml")
    assert found.code == 2, found.output
    assert "drift on: am-1; no answer or refused: none" in found.output
    assert farm.journal()[-1]["edges"] == ["am-1"]

    # withdraw.yml: one reports that the step was skipped, one something else. It reads no
    # variable that it does not need, and does without a reason that cannot be read.
    answers(liar, json.dumps({"skipped": True, "changed": False}))
    answers(farm.edges["eu-0"], json.dumps(FITTING))
    bad = ["-e", "springtide_gate=maybe", "-e", "springtide_step_s=soon", "--tags", "red"]
    withdrawn = farm.play("withdraw.yml", *bad, springtide_reason="{{ nyc")
    assert withdrawn.code == 2, withdrawn.output
    assert "NOT confirmed as withdrawn: am-1, eu-0" in withdrawn.output
    line = farm.journal()[-1]
    assert (line["verdict"], line["edges"], sorted(line["details"]["not"])) == ("partial", ["eu-2"], ["am-1", "eu-0"])


def test_variables_of_another_type_are_refused_before_the_first_change(farm: Farm) -> None:
    farm.publish()
    refused = farm.play("rollout.yml", "-e", "springtide_gate=maybe", "-e", "springtide_gate_tries=often")
    assert refused.code == 2
    assert "springtide_gate" in refused.output
    assert "springtide_gate_tries" in refused.output
    refused = farm.play("rollback.yml", "-e", "springtide_wave_growth=0")
    assert refused.code == 2
    assert "springtide_wave_growth (1 to 1000)" in refused.output
    part = farm.play("drift.yml", "--limit", "eu-0")
    assert part.code == 2
    assert "leave --limit away" in part.output
    tagged = farm.play("rollback.yml", "--skip-tags", "all")
    assert tagged.code == 2, "nothing was done, and that with success"
    assert "and --tags and --skip-tags" in tagged.output
    assert not (farm.publish_dir / "journal.jsonl").exists()


def test_a_program_that_answers_no_report_has_failed_and_not_refused(farm: Farm) -> None:
    """A refusal has changed nothing; whether this has, nobody knows."""
    farm.hold()
    [odd] = farm.script("echo broken; exit 2")
    found = farm.play("drift.yml", springtide_edge_program=odd)
    assert found.code == 2
    assert found.output.count('"refusal": 1') == len(farm.edges)
    assert "broken" in found.output
    assert "Syntax error" not in found.output
