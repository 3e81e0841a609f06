"""Rounds reach edges through Ansible and real sshd, in waves, and come back."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from testkit.edge import make_key, sign
from testkit.farm import NEW, Farm, Node, wait_for
from testkit.home import Home
from testkit.published import canonical

pytestmark = pytest.mark.root


def changed(stats: dict[str, dict[str, int]]) -> dict[str, int]:
    return {host: counts["changed"] for host, counts in stats.items()}


def test_a_round_reaches_every_edge_and_a_second_run_changes_nothing(farm: Farm) -> None:
    folder = farm.publish()
    looked = farm.play("rollout.yml", "--check", "--diff")
    assert looked.code == 0, looked.output
    assert "+10.200.1.0/24 " in looked.output
    assert changed(looked.stats) == {**dict.fromkeys(farm.edges, 1), "localhost": 0}
    assert farm.windows() == {name: {} for name in farm.edges}, "check mode changed an edge"
    assert not any(node.state_dir.exists() for node in farm.edges.values())
    assert farm.folder.resolved("current") is None
    assert not (farm.publish_dir / "journal.jsonl").exists()

    gate = farm.script(f'echo "$wave $changed" >> {farm.directory}/calls; exit 0')
    first = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    assert first.code == 0, first.output
    assert farm.windows() == {name: {"10.200.1.0/24": 30, "10.200.2.0/24": 40} for name in farm.edges}
    calls = [line.split() for line in (farm.directory / "calls").read_text().splitlines()]
    assert [(wave, len(names.split(","))) for wave, names in calls] == [("1", 2), ("2", 3)]
    assert {name[:2] for name in calls[0][1].split(",")} == {"eu", "am"}, "one canary for each region"
    assert farm.folder.resolved("current") == (folder / "edges").resolve()
    recorded = [(line["event"], line["verdict"]) for line in farm.journal()]
    waves = [("wave", "applied"), ("cleared", "")] * 2
    assert recorded == [("rollout", "begun"), *waves, ("rollout", "done")]

    refused = farm.play("rollout.yml", springtide_gate=True, springtide_gate_delay_s=200)
    assert refused.code == 2, refused.output
    assert "gates of 2 waves need 800 s and more; publish anew, with a larger bundle.ttl_s" in refused.output

    again = farm.play("rollout.yml", "--diff")
    assert again.code == 0, again.output
    assert changed(again.stats) == dict.fromkeys([*farm.edges, "localhost"], 0)

    # The way back needs only what was published: before it there was nothing.
    back = farm.play("rollback.yml", springtide_reason="loss", springtide_command="/nonexistent")
    assert back.code == 0, back.output
    assert "this lasts until the next rollout" in back.output
    assert farm.windows() == {name: {} for name in farm.edges}
    assert farm.folder.resolved("current") == (folder / "back").resolve()


def test_where_the_policy_advises_nothing_is_pushed_and_what_was_goes_back(farm: Farm) -> None:
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    policy = farm.directory / "policy.yaml"
    policy.write_text("mode: advise\n")
    refused = farm.play("rollout.yml", springtide_policy=str(policy))
    assert refused.code == 2, refused.output
    assert f"advice only (mode: advise in {policy}): nothing is pushed" in refused.output
    assert farm.windows() == dict.fromkeys(farm.edges, before)
    assert not (farm.publish_dir / "journal.jsonl").exists()
    back = farm.play("rollback.yml", springtide_policy=str(policy), springtide_reason="loss")
    assert back.code == 0, back.output
    assert farm.windows() == {name: {} for name in farm.edges}, "before the first round there was nothing"
    # A publication from before the rollback is not pushed after it.
    policy.write_text("# every key has its default\n")
    refused = farm.play("rollout.yml", springtide_policy=str(policy))
    assert refused.code == 2
    assert "publish again" in refused.output
    assert farm.windows() == {name: {} for name in farm.edges}
    farm.publish(farm.documents(NEW))
    # An edge that fleet.yaml keeps out of pushes is neither changed, nor gone back, nor compared.
    fleet: dict[str, Any] = yaml.safe_load((farm.directory / "fleet.yaml").read_text())
    fleet["pops"]["am"]["edges"]["am-1"]["push"] = False
    (farm.directory / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    done = farm.play("rollout.yml", springtide_policy=str(policy))
    assert done.code == 0, done.output
    assert "left alone: am-1 (push: false in fleet.yaml)" in done.output
    assert {name for name, windows in farm.windows().items() if not windows} == {"am-1"}
    assert "am-1" not in done.stats
    [begun] = [line for line in farm.journal() if (line["event"], line["verdict"]) == ("rollout", "begun")]
    assert sorted(begun["edges"]) == sorted(farm.edges.keys() - {"am-1"})
    same = farm.play("drift.yml", springtide_policy=str(policy))
    assert same.code == 0, same.output


def test_a_failed_gate_rolls_back_every_edge_also_one_that_was_unreachable(farm: Farm) -> None:
    before = farm.hold()
    folder = farm.publish(farm.documents(NEW))
    # The canary of america dies after it applied the round, before the gate.
    lost = farm.edges["am-1"]
    gate = farm.script(f"ip -n {lost.namespace} link set wan0 down; echo retransmissions doubled; exit 4")
    rolled = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    assert rolled.code == 2, rolled.output
    assert "the gate after wave 1 answered retransmissions doubled" in rolled.output
    assert "2 edges are back" in rolled.output
    assert "NOT back: am-1" in rolled.output
    assert farm.folder.resolved("current") == (folder / "back").resolve()
    assert {name: node.windows() for name, node in farm.edges.items() if node is not lost} == dict.fromkeys(
        [name for name in farm.edges if name != "am-1"], before
    )

    lost.ip("link", "set", "wan0", "up")
    lost.ip("route", "replace", "default", "via", "10.99.0.1")
    found = farm.play("drift.yml")
    assert found.code == 2
    assert "drift on: am-1" in found.output
    # The timer's command, with repair.
    unit = (Path(__file__).parents[2] / "systemd/springtide-drift.service").read_text()
    [line] = re.findall(r"^ExecStart=\S+ -i \S+ (.*)$", unit, re.MULTILINE)
    *options, play = line.replace("${SPRINGTIDE_REPAIR}", "true").split()
    repaired = farm.play(play, *options)
    assert repaired.code == 0, repaired.output
    assert farm.windows() == dict.fromkeys(farm.edges, before)
    assert [(line["event"], line["verdict"]) for line in farm.journal()][-3:] == [
        ("rollout", "failed"),
        ("drift", "found"),
        ("drift", "repaired"),
    ]


def test_a_gate_that_sees_no_samples_lets_nothing_go_on(farm: Farm, template: Path) -> None:
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    shutil.copytree(template, farm.directory / "store", symlinks=True)
    rolled = farm.play("rollout.yml", springtide_gate=True, springtide_gate_tries=1)
    assert rolled.code == 2, rolled.output
    assert "the gate after wave 1 answered wait: no samples within 60 s" in rolled.output
    assert farm.windows() == dict.fromkeys(farm.edges, before)
    gates = [line for line in farm.journal() if line["event"] == "gate"]
    assert gates
    assert {(line["verdict"], len(line["edges"]), line["details"]["wave"]) for line in gates} == {("wait", 2, 1)}
    history = Home(farm.directory).json("history", "--publish-dir", farm.publish_dir)
    events = [(row["event"], row["verdict"]) for row in history]
    assert ("rollback", "done") in events
    assert len(events) == len(farm.journal())


def tampered(farm: Farm, folder: Path) -> None:
    path = folder / "edges/eu-0.json"
    path.write_bytes(path.read_bytes().replace(b'"initcwnd":35', b'"initcwnd":36'))


def by_a_stranger(farm: Farm, folder: Path) -> None:
    sign(folder / "edges/am-1.json", make_key(farm.directory / "unknown"))


def of_another_edge(farm: Farm, folder: Path) -> None:
    for suffix in (".json", ".json.sig"):
        (folder / f"edges/eu-2{suffix}").write_bytes((folder / f"edges/eu-0{suffix}").read_bytes())


def an_older_round(farm: Farm, folder: Path) -> None:
    path = folder / "edges/am-3.json"
    path.write_bytes(canonical(farm.documents(NEW, later=-600, ttl=1200)["am-3"]))
    sign(path, farm.directory / "publisher")


def test_what_edges_refuse_stops_the_rollout(tmp_path: Path) -> None:
    with Farm.made(tmp_path, count=4) as farm:
        before = farm.hold()
        fleet: dict[str, Any] = yaml.safe_load((farm.directory / "fleet.yaml").read_text())
        # Each edge in a region of its own: then all of them are canaries.
        fleet["pops"] = {
            name: {"region": name, "prefixes": ["10.1.0.0/16"], "edges": {name: {"address": node.address}}}
            for name, node in farm.edges.items()
        }
        (farm.directory / "fleet.yaml").write_text(yaml.safe_dump(fleet))
        folder = farm.publish(farm.documents(NEW))
        of_another_edge(farm, folder)
        for spoil in (tampered, by_a_stranger, an_older_round):
            spoil(farm, folder)
        rolled = farm.play("rollout.yml")
        assert rolled.code == 2
        for refusal in (
            "is not one of this content",
            "its key does not stand in",
            "edge: is for eu-0, this is eu-2",
            "is older than the applied",
        ):
            assert refusal in rolled.output, refusal
        assert "4 edges are back" in rolled.output
        assert farm.windows() == dict.fromkeys(farm.edges, before)


def test_a_rollback_that_an_edge_refuses_serves_the_others_and_fails(farm: Farm) -> None:
    before = farm.hold()
    folder = farm.publish(farm.documents(NEW))
    assert farm.play("rollout.yml").code == 0
    sign(folder / "back/eu-0.json", make_key(farm.directory / "unknown"))
    back = farm.play("rollback.yml")
    assert back.code == 2, back.output
    assert "2 edges are back to what held before; withdrawn to the kernel default: eu-0" in back.output
    assert farm.windows() == {**dict.fromkeys(farm.edges, before), "eu-0": {}}
    assert farm.journal()[-1]["verdict"] == "partial"


def test_an_edge_that_is_down_stops_the_rollout_and_the_others_go_back(farm: Farm) -> None:
    before = farm.hold()
    farm.publish(farm.documents(NEW))
    # Wave 2 is what is left of europe.
    gate = farm.script(
        "case $changed in *eu-0*) dead="
        + shlex.quote(farm.edges["eu-2"].namespace)
        + ";; *) dead="
        + shlex.quote(farm.edges["eu-0"].namespace)
        + ";; esac\nip -n $dead link set wan0 down; exit 0",
    )
    rolled = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    assert rolled.code == 2, rolled.output
    assert "not applied on eu-" in rolled.output
    assert "2 edges are back" in rolled.output
    held = [node.windows() for node in farm.edges.values() if reachable(node)]
    assert held == [before, before]


def reachable(node: Node) -> bool:
    return "state UP" in Farm.run("ip", "-n", node.namespace, "link", "show", "wan0")


def test_one_rollout_at_a_time_and_withdraw_waits_for_none(farm: Farm) -> None:
    farm.publish()
    started, go_on = farm.directory / "started", farm.directory / "go-on"
    gate = farm.script(f"touch {started}; while [ ! -e {go_on} ]; do sleep 0.1; done; exit 0")
    first = farm.start("rollout.yml", springtide_gate=True, springtide_gate_command=gate)
    try:
        wait_for(started.exists, "the first rollout did not reach its gate")
        second = farm.play("rollout.yml")
        assert second.code == 2
        assert "taken: a rollout by" in second.output
        assert sum(bool(windows) for windows in farm.windows().values()) == 2, "the second changed an edge"
        withdrawn = farm.play("withdraw.yml", springtide_reason="loss towards nyc")
        assert withdrawn.code == 0, withdrawn.output
        assert farm.windows() == {name: {} for name in farm.edges}
        assert (farm.journal()[-1]["event"], farm.journal()[-1]["reason"]) == ("withdraw", "loss towards nyc")
    finally:
        go_on.touch()
        output, _ = first.communicate(timeout=120)  # the bound is only for a machine that stands still
    assert first.returncode == 2, output
    assert "withdraw.yml came in between" in output
    assert farm.windows() == {name: {} for name in farm.edges}, "the rollout brought routes back after withdraw.yml"
    looked = farm.play("drift.yml", springtide_resume=True)
    assert "Push again" in looked.output, "it did not come so far"
    refused = farm.play("rollout.yml")
    assert refused.code == 2
    assert "loss towards nyc; to push again, use -e springtide_resume=true" in refused.output
    resumed = farm.play("rollout.yml", springtide_resume=True)
    assert resumed.code == 0, resumed.output
    assert all(farm.windows().values())


@pytest.mark.proof
def test_edges_are_prepared_and_stay_so(tmp_path: Path) -> None:
    with Farm.made(tmp_path, count=1) as farm:
        prepare(farm)


def receive_buffer(farm: Farm) -> list[int]:
    command = ["ip", "netns", "exec", farm.edges["eu-0"].namespace, "sysctl", "-n", "net.ipv4.tcp_rmem"]
    return [int(word) for word in Farm.run(*command).split()]


def prepare(farm: Farm) -> None:
    looked = farm.play("edges.yml", "--check")
    assert looked.code == 0, looked.output
    assert not any((node.directory / "etc").exists() for node in farm.edges.values())
    rmem = receive_buffer(farm)
    drop_ins = farm.directory / "drop-ins"
    measured: dict[str, Any] = {"edge_metrics_file": "/srv/textfile/edge.prom", "edge_watch_drop_ins": str(drop_ins)}
    prepared = farm.play("edges.yml", "-e", "edge_receive_buffer_bytes=400000", **measured)
    assert prepared.code == 0, prepared.output
    assert receive_buffer(farm)[1] == 400_000
    for name, node in farm.edges.items():
        assert (node.directory / "etc/edge").read_text() == f"{name}\n"
    started = re.findall(r"^(ExecStart|ReadWritePaths)=(.*)$", (drop_ins / "metrics.conf").read_text(), re.M)
    assert [key for key, _ in started] == ["ExecStart", "ExecStart", "ReadWritePaths"]
    assert started[1][1].endswith("/springtide-edge watch --metrics /srv/textfile/edge.prom")
    assert started[2][1] == "-/srv/textfile"
    targets = {name[:2]: [f"{node.address}:8017"] for name, node in farm.edges.items()} | {"xx": ["[fd00::1]:8017"]}
    probing: dict[str, Any] = {"edge_probe": True, "edge_probe_targets": targets}
    assert not any((node.directory / "etc/probe-targets").exists() for node in farm.edges.values())
    key = farm.directory / "parity.key"
    key.write_text("7" * 64)
    all_on = measured | probing | {"edge_parity_key": str(key)}
    assert farm.play("edges.yml", edge_receive_buffer_bytes=400_000, **all_on).code == 0
    for name, node in farm.edges.items():
        brought = node.directory / "etc/parity.key"
        assert (brought.read_text(), brought.stat().st_mode & 0o777) == ("7" * 64, 0o600)
        mark, *named = (node.directory / "etc/probe-targets").read_text().splitlines()
        assert mark.startswith("# ")
        assert named == [target for pop, own in targets.items() if pop != name[:2] for target in own]
    for wrong in ({}, {"eu": ["edge.example:8017"]}):
        refused = farm.play("edges.yml", **measured, edge_probe=True, edge_probe_targets=wrong)
        assert (refused.code, "must name ADDRESS:PORT" in refused.output) == (2, True)
    assert farm.play("edges.yml", edge_receive_buffer_bytes=400_000, **measured).code == 0
    left = [node.directory / "etc" / name for node in farm.edges.values() for name in ("probe-targets", "parity.key")]
    assert not any(path.exists() for path in left)
    by_hand = farm.edges["eu-0"].directory / "etc/probe-targets"
    by_hand.write_text("192.0.2.1:80\n")
    again = farm.play("edges.yml", edge_receive_buffer_bytes=400_000, **measured)
    assert changed(again.stats) == dict.fromkeys([*farm.edges, "localhost"], 0), again.output
    assert by_hand.read_text() == "192.0.2.1:80\n"
    bad = farm.play("edges.yml", **measured | {"edge_metrics_file": "edge.prom"})
    assert bad.code == 2
    assert "must be an absolute path" in bad.output
    bad = farm.play("edges.yml", **measured, edge_parity_key=str(farm.directory / "none"))
    assert (bad.code, "must be a file here: openssl rand -hex 32" in bad.output) == (2, True)
    back = farm.play("edges.yml", edge_watch_drop_ins=str(drop_ins))
    assert back.code == 0, back.output
    assert receive_buffer(farm) == rmem
    assert not list(drop_ins.iterdir())
    assert not (farm.edges["eu-0"].directory / "receivers.conf").exists()
    farm.edges["eu-0"].ip("rule", "add", "l3mdev", "pref", "1001")
    refused = farm.play("edges.yml")
    assert refused.code == 2
    assert "VRF" in refused.output
