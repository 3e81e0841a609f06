"""When a publication is rolled out, and how a play that fails or outstays its time ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from springtide import instants
from springtide.errors import InputError, SpringtideError
from springtide.jobs import ansible, notice
from springtide.jobs.rollout import roll_out, wanted
from springtide.jobs.site import Site
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.pause import Pause, pause, resume
from springtide.publication.withdrawal import WITHDRAWN

import testkit.published
from testkit.edge import enforcement
from testkit.home import ROUND


def publish(folder: PublishFolder, seconds: int) -> Path:
    document = {
        "schema_version": 1,
        "edge": "ams-1",
        "pop": "ams",
        "round": instants.show(ROUND),
        "policy_version": "0123456789ab",
        "created_at": instants.show(ROUND + seconds),
        "expires_at": instants.show(ROUND + 900),
        "enforce": enforcement(),
        "entries": [],
    }
    return testkit.published.publish(folder, {"ams-1": document})


def test_the_reason_against_a_rollout_is_reported(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    assert wanted(folder, Policy()) == ("", "nothing is published yet")
    first = publish(folder, 0)
    assert wanted(folder, Policy()) == (first.name, "")
    pause(tmp_path, Pause("maintenance", instants.now()))
    assert "maintenance" in wanted(folder, Policy())[1]
    resume(tmp_path, "")
    (tmp_path / WITHDRAWN).write_text("loss")
    assert "springtide_resume=true" in wanted(folder, Policy())[1]
    (tmp_path / WITHDRAWN).unlink()
    for verdict, expected in (("begun", ""), ("failed", "failed before")):
        journal.append(tmp_path, journal.Event("rollout", publication=first.name, verdict=verdict))
        assert expected in wanted(folder, Policy())[1]
    journal.append(tmp_path, journal.Event("rollout", publication=first.name, verdict="done"))
    journal.append(tmp_path, journal.Event("rollback", publication=first.name, verdict="done"))
    assert "was taken back" in wanted(folder, Policy())[1]
    second = publish(folder, 10)
    assert wanted(folder, Policy()) == (second.name, "")
    folder.point("current", second / "edges")
    assert "is current on the fleet already" in wanted(folder, Policy())[1]
    third = publish(folder, 20)
    assert wanted(folder, Policy()) == (third.name, "")
    assert wanted(folder, Policy(mode="advise"))[0] == third.name
    assert "advice only" in wanted(folder, Policy(mode="advise"))[1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site("chdb:///none", 1, tmp_path / "fleet.yaml", tmp_path / "policy.yaml", tmp_path / "publish", None)


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A program in ansible-playbook's place, which stays or fails as no real play can be made to."""
    program = tmp_path / "play.py"
    program.write_text(code)
    monkeypatch.setenv("SPRINGTIDE_ANSIBLE", f"{sys.executable} {program}")


def test_a_play_that_fails_reports_its_reason(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path, monkeypatch, 'print(\'fatal: [x]: FAILED! => {"msg": "the gate found loss"}\'); raise SystemExit(2)'
    )
    lines: list[str] = []
    with pytest.raises(SpringtideError, match=r"rollout\.yml: the gate found loss"):
        ansible.play(site, "rollout.yml", {}, lines.append)
    assert lines[0].startswith("fatal:")
    monkeypatch.setenv("SPRINGTIDE_ANSIBLE", "/nonexistent/ansible-playbook")
    with pytest.raises(SpringtideError, match="cannot be started"):
        ansible.play(site, "rollout.yml", {})


@pytest.mark.parametrize(("verdicts", "expected"), [(["begun"], True), (["begun", "failed"], False), ([], False)])
def test_an_interrupted_rollout_is_rolled_back(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdicts: list[str], expected: bool
) -> None:
    folder = PublishFolder(site.publish_dir)
    publication = publish(folder, 0)
    folder.point("current", publication / "back")
    for verdict in verdicts:
        journal.append(site.publish_dir, journal.Event("rollout", publication=publication.name, verdict=verdict))
    # Ansible ends so where one of its processes was killed.
    stand_in(tmp_path, monkeypatch, "import sys\nprint(sys.argv[-1])\nsys.exit('rollout' in sys.argv[-1])")
    lines: list[str] = []
    with pytest.raises(SpringtideError, match=r"rollout\.yml: exit code 1"):
        roll_out(site, "a trial", lines.append)
    assert [Path(line).name for line in lines] == ["rollout.yml", "rollback.yml"][: 1 + expected]


def test_a_reason_is_a_text_whatever_an_edge_has_put_into_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    monkeypatch.setenv("SPRINGTIDE_ANSIBLE", str(Path(sys.executable).with_name("ansible-playbook")))
    monkeypatch.setenv("SPRINGTIDE_ANSIBLE_DIR", str(tmp_path))
    site.fleet_path.write_text("all: {hosts: {}}")
    (tmp_path / "playbooks").mkdir()
    written = tmp_path / "written.json"
    lines = {"reason": "{{ springtide_reason }}", "gate": "{{ springtide_gate | default('as it was') }}"}
    copied = {"copy": {"content": "{{ lines | to_json }}", "dest": str(written)}, "vars": {"lines": lines}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [copied]}
    (tmp_path / "playbooks/rollback.yml").write_text(json.dumps([play]))
    template = f"{{{{ lookup('pipe', 'touch {taken}') }}}}"
    reason = f"cut \u00fc\U0001f600 \"'\x1b\n springtide_gate=false {template}"
    ansible.play(site, "rollback.yml", {"springtide_reason": reason}, lambda line: None)
    assert not taken.exists(), "a template in a reason was run on the publisher"
    expected = reason.replace("\x1b", " ").replace("\n", " ")
    assert json.loads(written.read_text()) == {"reason": expected, "gate": "as it was"}


def test_no_environment_lets_facts_become_variables(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "import os\nprint(os.environ['ANSIBLE_INJECT_FACT_VARS'])")
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "true")
    lines: list[str] = []
    ansible.play(site, "drift.yml", {}, lines.append)
    assert lines == ["False"]


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    names = ("STORE", "STORE_WAIT", "FLEET", "POLICY", "PUBLISH_DIR", "SIGN_KEY", "CLUSTER")
    assert Site.of({f"SPRINGTIDE_{name}": "" for name in names}) == Site.of({})
    with pytest.raises(InputError, match="SPRINGTIDE_STORE_WAIT: seconds: 'soon' is not a number"):
        Site.of({"SPRINGTIDE_STORE_WAIT": "soon"})


def test_a_play_does_not_outlive_its_step(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    pids: list[int] = []

    def stop_at_once(line: str) -> None:
        pids.append(int(line))
        raise TimeoutError(line)

    with pytest.raises(TimeoutError):
        ansible.play(site, "rollout.yml", {}, stop_at_once)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_failure_is_one_line_in_the_audit_and_a_time(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    monkeypatch.setenv("SPRINGTIDE_METRICS_DIR", str(tmp_path / "metrics"))
    line = notice.failed(site, "springtide_round", "publish", "disk full\nand more", "make room")
    assert line == "springtide_round.publish: disk full; make room"
    [event], _, _ = journal.read(site.publish_dir)
    assert (event.event, event.verdict, event.reason) == ("job", "failed", line)
    written = (tmp_path / "metrics/springtide_round_publish_failed.prom").read_text()
    monkeypatch.setenv("SPRINGTIDE_METRICS_DIR", "")
    monkeypatch.chdir(tmp_path)
    notice.measure("springtide_round", "publish", "succeeded")
    assert not list(tmp_path.glob("*.prom"))
    assert f'{{job="springtide_round",step="publish"}} {ROUND + 30}' in written
