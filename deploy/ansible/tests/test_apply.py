"""A bundle in a real kernel's routing tables, and out again.

Long: one command against one kind of namespace.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from testkit.edge import NAME, PROGRAM, Edge, bundle, instant, make_key, sealed, sign

pytestmark = pytest.mark.root

OUR_RULE = "1000: from all lookup 201 proto 201"


def rules(edge: Edge, version: int) -> list[str]:
    return [" ".join(line.split()) for line in edge.ip(f"-{version}", "rule", "show").splitlines()]


def without_ours(picture: dict[str, str]) -> dict[str, str]:
    return {
        key: "\n".join(line for line in text.splitlines() if "table 201" not in line and "lookup 201" not in line)
        for key, text in picture.items()
    }


# --- the whole way


def test_routes_and_rules_come_and_go_and_leave_the_host_byte_for_byte(edge: Edge) -> None:
    edge.batch(
        [
            "route add default via 192.168.0.2",
            "route add 172.20.0.0/16 via 192.168.1.2 proto bird initcwnd 44",
            "route add 172.21.0.0/16 via 192.168.1.2 table 202 proto 201",
            "rule add pref 500 fwmark 0x10 lookup 202",
            "rule add pref 40000 from 192.168.0.1 lookup 202",
        ]
    )
    edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
    before = edge.picture()

    outcome = edge.apply({"10.77.2.0/24": 83, "10.77.3.7/32": 12, "fd77:2::/48": 40})
    assert (outcome.code, outcome.report["changed"], outcome.report["added"]) == (0, True, 3)
    assert edge.windows() == {"10.77.2.0/24": 83, "10.77.3.7": 12, "fd77:2::/48": 40}
    assert edge.table(4)[0] == "10.77.2.0/24 via 192.168.0.2 dev up0 proto 201 initcwnd 83"
    assert OUR_RULE in rules(edge, 4)
    assert OUR_RULE in rules(edge, 6)
    assert without_ours(edge.picture()) == without_ours(before)

    gone = edge.run("withdraw")
    assert (gone.code, gone.report["changed"], gone.report["removed"]) == (0, True, 3)
    assert edge.picture() == before
    again = edge.run("withdraw")
    assert (again.code, again.report["changed"]) == (0, False)


def test_a_second_run_changes_nothing(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = edge.write(bundle({"10.77.2.0/24": 83}))
    assert edge.run("apply", path).report["changed"] is True
    files = {file.name: file.stat().st_mtime_ns for file in edge.state_dir.iterdir()}
    picture = edge.picture()
    second = edge.run("apply", path)
    assert (second.code, second.report["changed"]) == (0, False)
    assert edge.picture() == picture
    assert {file.name: file.stat().st_mtime_ns for file in edge.state_dir.iterdir()} == files


def test_the_next_round_is_reached_by_the_difference(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
    edge.apply({"10.1.0.0/16": 20, "10.2.0.0/16": 20, "fd77:2::/48": 40})
    outcome = edge.apply({"10.2.0.0/16": 30, "10.3.0.0/16": 20})
    assert (outcome.report["added"], outcome.report["replaced"], outcome.report["removed"]) == (1, 1, 2)
    assert edge.windows() == {"10.2.0.0/16": 30, "10.3.0.0/16": 20}
    assert OUR_RULE not in rules(edge, 6), "a family without routes has no rule"


def test_there_is_no_rule_without_routes_to_serve(edge: Edge) -> None:
    before = edge.picture()
    assert edge.apply({}).code == 0
    outcome = edge.apply({"10.77.2.0/24": 83})
    assert (outcome.code, len(outcome.report["refused"])) == (3, 1)
    assert edge.picture() == before


# --- next hops


def test_only_the_window_differs_from_the_edges_own_route(edge: Edge) -> None:
    attributes = (
        "src 192.168.1.1 mtu lock 1400 rtt 120ms advmss 1300 hoplimit 9 features ecn rto_min 300ms initrwnd 30"
        " quickack 1 congctl lock reno"
    )
    edge.ip("route", "add", "10.77.0.0/16", *["via", "192.168.0.2", "initcwnd", "15"], *attributes.split())
    assert edge.apply({"10.77.2.0/24": 83}).code == 0
    own = next(line for line in edge.table(table="254") if line.startswith("10.77.0.0/16"))
    copy = edge.table()[0]
    wanted = own.replace("10.77.0.0/16", "10.77.2.0/24").replace("initcwnd 15", "initcwnd 83")
    assert copy.replace("proto 201 ", "") == wanted
    assert "mtu lock 1400" in copy
    assert "congctl lock reno" in copy


@pytest.mark.parametrize(
    ("version", "arguments", "copy"),
    [
        (4, "dev up1 scope link", "dev up1 proto 201 scope 253 initcwnd 50"),
        (4, "via 203.0.113.9 dev up1 onlink", "via 203.0.113.9 dev up1 proto 201 onlink initcwnd 50"),
        (4, "via inet6 fd00:1::2 dev up1", "via inet6 fd00:1::2 dev up1 proto 201 initcwnd 50"),
        (
            4,
            "nexthop via 192.168.0.2 weight 3 nexthop via 192.168.1.2 weight 2",
            r"proto 201 initcwnd 50 \ nexthop via 192.168.0.2 dev up0 weight 3 "
            r"\ nexthop via 192.168.1.2 dev up1 weight 2",
        ),
        (
            6,
            "via fd00:1::2 src fd00:0::1 mtu 1400",
            "via fd00:1::2 dev up1 proto 201 src fd00::1 metric 1024 mtu 1400 initcwnd 50 pref medium",
        ),
        (
            6,
            "nexthop via fd00:1::2 weight 2 nexthop via fd00:0::2 weight 3",
            r"proto 201 metric 1024 initcwnd 50 pref medium\ nexthop via fd00:1::2 dev up1 weight 2 "
            r"\ nexthop via fd00::2 dev up0 weight 3",
        ),
    ],
)
def test_every_kind_of_next_hop_is_copied_and_follows_a_change(
    edge: Edge, version: int, arguments: str, copy: str
) -> None:
    cover, destination = ("10.77.0.0/16", "10.77.2.0/24") if version == 4 else ("fd77::/32", "fd77:0:2::/48")
    edge.ip(f"-{version}", "route", "add", cover, *arguments.split())
    assert edge.apply({destination: 50}).code == 0
    assert edge.table(version) == [f"{destination} {copy}"]

    plain = "via 192.168.0.2 dev up0" if version == 4 else "via fd00:0::2 dev up0"
    for replacement in (plain, arguments):
        edge.ip(f"-{version}", "route", "replace", cover, *replacement.split())
        outcome = edge.apply({destination: 50})
        assert (outcome.code, outcome.report["replaced"]) == (0, 1)
    assert edge.table(version) == [f"{destination} {copy}"]


@pytest.mark.parametrize("version", [4, 6])
def test_nexthop_ids_and_groups_are_copied_as_ids(edge: Edge, version: int) -> None:
    gateways = ("192.168.0.2", "192.168.1.2") if version == 4 else ("fd00:0::2", "fd00:1::2")
    for number, gateway in enumerate(gateways):
        edge.ip("nexthop", "add", "id", f"{number + 1}", "via", gateway, "dev", f"up{number}")
    edge.ip("nexthop", "add", "id", "7", "group", "1,3/2,2")
    covers = ("10.1.0.0/16", "10.2.0.0/16") if version == 4 else ("fd01::/32", "fd02::/32")
    for cover, identity in zip(covers, ("1", "7")):
        edge.ip(f"-{version}", "route", "add", cover, "nhid", identity)
    outcome = edge.apply(dict.fromkeys(covers, 50))
    assert outcome.code == 0, outcome
    lines = [line for line in edge.table(version) if "initcwnd" in line]
    assert [line.split()[1:3] for line in lines] == [["nhid", "1"], ["nhid", "7"]]
    assert edge.status()["in_sync"] is True


def test_longest_match_decides_and_a_default_route_covers_the_rest(edge: Edge) -> None:
    edge.batch(["route add default via 192.168.0.2", "route add 10.77.0.0/16 via 192.168.1.2"])
    edge.apply({"10.77.2.0/24": 50, "10.78.2.0/24": 50})
    assert [line.split()[4] for line in edge.table()] == ["up1", "up0"]


def test_our_own_table_is_not_used_for_the_next_hop(edge: Edge) -> None:
    edge.ip("route", "add", "10.77.0.0/16", "via", "192.168.0.2")
    edge.apply({"10.77.2.0/24": 50})
    edge.ip("route", "replace", "10.77.0.0/16", "via", "192.168.1.2")
    edge.apply({"10.77.2.0/24": 50})
    assert "via 192.168.1.2" in edge.table()[0]


# --- what is refused


def test_a_refused_destination_has_a_reason_and_leaves_the_others_served(edge: Edge) -> None:
    edge.batch(
        [
            "route add 10.0.0.0/8 via 192.168.0.2",
            "route add 10.2.9.0/24 via 192.168.1.2",
            "route add blackhole 10.3.0.0/16",
            "route add 10.4.0.0/16 via 192.168.0.2 tos 0x10",
            "addr add 10.5.1.1/32 dev lo",
            "route add local 10.6.0.0/16 dev lo",
        ]
    )
    edge.ip("-6", "route", "add", "unreachable", "fd77::/32")
    before = without_ours(edge.picture())
    outcome = edge.apply(
        {
            "10.1.0.0/16": 50,
            "10.2.0.0/16": 50,
            "10.3.1.0/24": 50,
            "10.4.1.0/24": 50,
            "10.5.0.0/16": 50,
            "10.6.1.0/24": 50,
            "172.16.0.0/12": 50,
            "192.168.0.0/24": 50,
            "fd77:0:2::/48": 50,
            "fd99::/48": 50,
        }
    )
    assert outcome.code == 3
    reasons = {entry["prefix"]: entry["reason"] for entry in outcome.report["refused"]}
    for prefix, part in {
        "10.2.0.0/16": "more specific route 10.2.9.0/24",
        "10.3.1.0/24": "is blackhole",
        "10.4.1.0/24": "by TOS or source",
        "10.5.0.0/16": "own address 10.5.1.1",
        "10.6.1.0/24": "is the edge's own",
        "172.16.0.0/12": "no route of the edge's own covers it",
        "192.168.0.0/24": "own address 192.168.0.1",
        "fd77:0:2::/48": "is unreachable",
        "fd99::/48": "no route of the edge's own covers it",
    }.items():
        assert part in reasons.pop(prefix)
    assert reasons == {}
    assert edge.windows() == {"10.1.0.0/16": 50}
    assert without_ours(edge.picture()) == before
    assert {entry["prefix"] for entry in edge.status()["refused"]} == {e["prefix"] for e in outcome.report["refused"]}


def test_a_destination_that_becomes_unfit_loses_its_route(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({"10.1.0.0/16": 50, "10.2.0.0/16": 50})
    edge.ip("route", "add", "10.2.9.0/24", "via", "192.168.1.2")
    outcome = edge.apply({"10.1.0.0/16": 50, "10.2.0.0/16": 50})
    assert (outcome.code, outcome.report["removed"]) == (3, 1)
    assert edge.windows() == {"10.1.0.0/16": 50}


@pytest.mark.parametrize(
    ("setup", "part"),
    [
        ("rule add pref 1000 from 192.168.0.1 lookup 77", "stands where Springtide's rule belongs"),
        ("rule add pref 1000 lookup 201", "stands where Springtide's rule belongs"),
        ("rule add pref 3000 fwmark 0x1 lookup 77", "would be bypassed"),
        ("route add 10.9.0.0/16 via 192.168.1.2 table 201", "is not Springtide's"),
        ("route add 10.77.2.0/24 via 192.168.1.2 table 201 proto bird initcwnd 20", "is not Springtide's"),
    ],
)
def test_a_host_that_is_not_fit_is_refused_and_not_touched(edge: Edge, setup: str, part: str) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip(*setup.split())
    before = edge.picture()
    outcome = edge.apply({"10.77.2.0/24": 83})
    assert outcome.code == 2
    assert part in outcome.errors
    assert outcome.errors.count("\n") == 1
    assert edge.picture() == before
    assert edge.run("withdraw").report["changed"] is False
    assert edge.picture() == before


def test_another_owners_rule_in_one_family_does_not_affect_a_bundle_for_the_other(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip("-6", "rule", "add", "pref", "1000", "lookup", "77")
    assert edge.apply({"10.77.2.0/24": 83}).code == 0


def test_withdraw_leaves_others_routes_in_our_table(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({"10.77.2.0/24": 83})
    edge.ip(*["route", "add", "10.9.0.0/16", "via", "192.168.1.2", "table", "201", "proto", "bird"])
    assert edge.run("withdraw").code == 0
    assert edge.table() == ["10.9.0.0/16 via 192.168.1.2 dev up1 proto 12"]
    assert OUR_RULE not in rules(edge, 4)


def test_names_that_an_operator_gives_to_our_numbers_change_nothing(edge: Edge) -> None:
    names = Path("/etc/netns") / edge.name / "iproute2"  # `ip netns exec` mounts it over /etc/iproute2
    names.mkdir(parents=True)
    try:
        (names / "rt_tables").write_text("254 hauptsache\n201 via\n")
        (names / "rt_protos").write_text("201 dev\n")
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        path = edge.write(bundle({"10.77.2.0/24": 83}))
        assert edge.run("apply", path).report["changed"] is True
        assert edge.run("apply", path).report["changed"] is False
        assert edge.run("withdraw").report["removed"] == 1
    finally:
        for file in names.iterdir():
            file.unlink()
        names.rmdir()
        names.parent.rmdir()


# --- bundles that do not belong here


def test_bad_bundles_change_nothing(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    applied = bundle({"10.77.2.0/24": 83})
    assert edge.run("apply", edge.write(applied)).code == 0
    picture, files = edge.picture(), sorted(edge.state_dir.iterdir())
    good = bundle({"10.77.2.0/24": 50, "10.77.3.0/24": 50})
    now = time.time()

    def signed(name: str, text: str) -> str:
        path = edge.directory / name
        path.write_text(text)
        sign(path, edge.key)
        return str(path)

    def changed(name: str, part: str) -> str:
        """A good bundle with a good signature, of which one `part` was changed afterwards."""
        path = Path(signed(name, json.dumps(good)))
        file = path if part == "bundle" else path.with_name(path.name + ".sig")
        text = file.read_text()
        file.write_text(text.replace('"initcwnd": 50', '"initcwnd": 51', 1) if part == "bundle" else text[:-60])
        return str(path)

    def signed_by(name: str, key: Path, namespace: str = "springtide-bundle") -> str:
        path = edge.directory / name
        path.write_text(json.dumps(good))
        sign(path, key, namespace)
        return str(path)

    bare = edge.directory / "bare.json"
    bare.write_text(json.dumps(good))
    for path, (code, part) in {
        str(bare): (10, ".sig: signature: is missing"),
        signed_by("unknown.json", make_key(edge.directory / "unknown")): (11, ".sig: signature: its key does not"),
        changed("flipped.json", "bundle"): (12, ".sig: signature: is not one of this content (the key did not"),
        changed("signature.json", "signature"): (12, ".sig: signature: is not one of this content ("),
        signed_by("email.json", edge.key, "email"): (
            12,
            ".sig: signature: is not one of this content (it was made for another purpose)",
        ),
        signed("cut.json", json.dumps(good)[:-40]): (2, ": JSON: "),
        signed("seal.json", json.dumps(good).replace(": 50", ": 51", 1)): (12, ": digest: does not match"),
        edge.write(bundle({"10.77.2.0/24": 50}, edge="lhr-1")): (13, ": edge: is for lhr-1, this is ams-1"),
        edge.write(bundle({"10.77.2.0/24": 50}, now=now - 700)): (15, ": expires_at: it expired"),
        edge.write(bundle({"10.77.2.0/24": 50}, now=now + 3600)): (2, ": created_at: "),
        edge.write(bundle({"10.77.2.0/24": 50}, round=instant(now // 300 * 300 - 300))): (14, ": round: "),
        edge.write(bundle({"10.77.2.0/24": 50}, now=now - 60, round=applied["round"])): (14, ": created_at: "),
        edge.write(sealed({**applied, "entries": []})): (14, ": digest: another bundle of "),
        str(edge.directory / "none.json"): (2, ": file: No such file"),
        str(edge.directory): (2, ": file: Is a directory"),
        "/dev/zero": (2, ": file: is not a regular file"),
    }.items():
        outcome = edge.run("apply", path)
        assert outcome.errors.startswith(f"{path}{part}")
        assert outcome.code == code, part
        assert outcome.errors.count("\n") == 1
        assert outcome.report == {"command": "apply", "error": outcome.errors.rstrip("\n"), "exit_code": code}
        assert edge.picture() == picture
        assert sorted(edge.state_dir.iterdir()) == files


def test_only_the_keys_that_stand_in_allowed_signers_count_and_only_root_writes_them(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = edge.write(bundle({"10.77.2.0/24": 83}))
    key = edge.key.with_suffix(".pub").read_text()
    for line, code in {
        f"somebody {key}": 11,
        f'springtide namespaces="git" {key}': 11,
        f'springtide valid-before="20010101" {key}': 11,
        "": 11,
        f'springtide namespaces="springtide-bundle" {key}': 0,
    }.items():
        edge.allowed_signers.write_text(line)
        assert edge.run("apply", path).code == code, line
        assert bool(edge.windows()) == (code == 0)
    edge.allowed_signers.chmod(0o666)
    outcome = edge.run("apply", path)
    assert (outcome.code, "others than its owner root can write it" in outcome.errors) == (2, True)
    edge.allowed_signers.unlink()
    outcome = edge.run("apply", path)
    assert outcome.code == 2, "the bundle is signed"
    assert f"{edge.allowed_signers}: trusted keys: is missing, so that no bundle is accepted" in outcome.errors
    assert "with --unsigned" in outcome.errors


def test_an_unsigned_bundle_is_applied_only_on_request_with_a_warning(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = Path(edge.write(bundle({"10.77.2.0/24": 83})))
    path.with_name(path.name + ".sig").unlink()
    assert edge.run("apply", str(path)).code == 10
    outcome = edge.run("apply", str(path), "--unsigned")
    assert (outcome.code, edge.windows()) == (0, {"10.77.2.0/24": 83})
    assert outcome.errors == "springtide-edge: WARNING: --unsigned: no signature is checked\n"
    assert [note.split(":")[0] for note in outcome.report["notes"]] == ["UNSIGNED"]


def test_an_older_round_stays_refused_after_a_withdrawal(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    old = edge.write(bundle({"10.77.2.0/24": 50}, round=instant(time.time() // 300 * 300 - 300)))
    new = edge.write(bundle({"10.77.2.0/24": 83}))
    assert edge.run("apply", old).code == 0
    assert edge.run("apply", new).code == 0
    edge.run("withdraw")
    assert edge.run("apply", old).code == 14
    assert edge.run("apply", new).report["added"] == 1


def test_wrong_usage_is_one_message_and_exit_code_2(edge: Edge) -> None:
    assert edge.run("apply").code == 2
    assert edge.run("frobnicate").code == 2
    wrong = subprocess.run(
        [str(PROGRAM), "apply", "x.json", "--edge", "Not A Name"], check=False, capture_output=True, text=True
    )
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_the_edges_name_and_whom_it_trusts_come_from_its_files(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = edge.write(bundle({"10.77.2.0/24": 83}))
    command = [str(PROGRAM), "apply", path, "--state-dir", str(edge.state_dir)]
    # A mount namespace of its own with an empty /etc: this machine's is not touched.
    bare = 'mount -t tmpfs none /etc && exec "$@"'
    named = (  # ssh-keygen wants to know who it is run by
        'users=$(cat /etc/passwd) && mount -t tmpfs none /etc && echo "$users" > /etc/passwd && mkdir /etc/springtide'
        f" && echo {NAME} > /etc/springtide/edge && cp {edge.allowed_signers} /etc/springtide/allowed_signers"
        ' && exec "$@"'
    )
    inside = ["ip", "netns", "exec", edge.name, "unshare", "--mount", "sh", "-c"]
    unchecked = [*command, "--unsigned"]
    missing = subprocess.run([*inside, bare, "sh", *unchecked], check=False, capture_output=True, text=True)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 2)
    assert missing.stderr.splitlines()[1].startswith("/etc/springtide/edge: edge: ")
    found = subprocess.run([*inside, named, "sh", *command], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert "applied: ams-1" in found.stdout


def test_without_the_capability_it_is_one_line_and_exit_code_2(edge: Edge) -> None:
    path = edge.write(bundle({"10.77.2.0/24": 83}))
    for arguments in (["apply", path, "--edge", NAME], ["status"], ["withdraw"], ["expire"]):
        done = subprocess.run(
            ["setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin", str(PROGRAM), *arguments],
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "run it as root" in done.stderr
