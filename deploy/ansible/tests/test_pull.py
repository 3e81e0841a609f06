"""Edges that fetch their bundles by themselves: from a real web server, by their own program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from testkit.certificate import make_certificate
from testkit.edge import EXPIRED, NAME, Edge, bundle, make_key, sign
from testkit.farm import NEW, Farm, wait_for
from testkit.origin import Origin, pullers

pytestmark = pytest.mark.root

FIRST, NEXT = {"10.200.1.0/24": 30}, {"10.200.1.0/24": 44, "10.200.2.0/24": 20}


@pytest.fixture
def edge(edge: Edge) -> Edge:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    return edge


@pytest.fixture
def origin(edge: Edge, tmp_path: Path) -> Iterator[Origin]:
    with Origin.made(edge.name, tmp_path) as made:
        yield made


def pulling(edge: Edge, origin: Origin, *arguments: str) -> list[str]:
    signers = ["--allowed-signers", str(edge.allowed_signers)]
    return edge.command("pull", "--origin", origin.url, *signers, *arguments)


def once(edge: Edge, origin: Origin, *arguments: str) -> tuple[int, dict[str, object], str]:
    """Exit code, report and errors of one look."""
    done = subprocess.run(pulling(edge, origin, "--once", *arguments), check=False, capture_output=True, text=True)
    assert "panicked" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@contextmanager
def service(edge: Edge, origin: Origin) -> Iterator[Path]:
    """The program as its unit runs it, looking every second; its errors."""
    errors = edge.directory / "pull.log"
    with errors.open("wb") as log:
        running = subprocess.Popen(pulling(edge, origin, "--interval", "1"), stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield errors
            assert running.poll() is None, errors.read_text()
        finally:
            running.terminate()
            running.wait()


def test_what_is_offered_is_applied_and_known_from_then_on(edge: Edge, origin: Origin) -> None:
    code, report, _ = once(edge, origin)
    assert (code, report["changed"], report["reason"]) == (0, False, "the origin offers nothing to this edge")
    origin.offer({NAME: edge.write(bundle(FIRST))})
    code, report, _ = once(edge, origin)
    assert (code, report["changed"], edge.windows()) == (0, True, FIRST)
    code, report, _ = once(edge, origin)
    assert (code, report["changed"]) == (0, False)
    origin.offer({NAME: edge.write(bundle(NEXT))})
    code, report, _ = once(edge, origin)
    assert (code, report["changed"], edge.windows()) == (0, True, NEXT)


def test_a_service_follows_the_origin_and_an_origin_that_is_away_takes_nothing_back(edge: Edge, origin: Origin) -> None:
    metrics = edge.directory / "edge.prom"
    origin.offer({NAME: edge.write(bundle(FIRST))})
    with service(edge, origin) as errors:
        wait_for(lambda: edge.windows() == FIRST, "the first was not applied")
        # It asks whether there is another one, and is not sent the same again.
        wait_for(lambda: f"304 /{NAME}.bundle" in origin.looks(), "it was sent again")
        edge.run("follow", "--metrics", str(metrics))
        assert "springtide_edge_origin_time_seconds " in metrics.read_text()
        origin.stop()
        wait_for(lambda: "tried again" in errors.read_text(), "the failure was not reported")
        edge.run("follow")
        assert edge.windows() == FIRST
        origin.offer({NAME: edge.write(bundle(NEXT))})
        origin.start()
        wait_for(lambda: edge.windows() == NEXT, "it did not come back")
        assert errors.read_text().count("tried again") == 1, "one failure is reported once"


def test_a_refused_bundle_is_not_sent_again_and_the_next_is_taken(edge: Edge, origin: Origin) -> None:
    origin.put(NAME, Path(edge.write(bundle(FIRST))).read_bytes())
    with service(edge, origin) as errors:
        wait_for(lambda: origin.looks().count(f"304 /{NAME}.bundle") > 1, "it was sent again")
        assert origin.looks().count(f"200 /{NAME}.bundle") == 1
        assert errors.read_text().count("not a signed bundle") == 1
        origin.offer({NAME: edge.write(bundle(NEXT))})
        wait_for(lambda: edge.windows() == NEXT, "the next was not taken")


def test_what_was_withdrawn_here_stays_so_until_another_one_is_offered(edge: Edge, origin: Origin) -> None:
    origin.offer({NAME: edge.write(bundle(FIRST))})
    with service(edge, origin):
        wait_for(lambda: edge.windows() == FIRST, "the first was not applied")
        assert edge.run("withdraw").code == 0
        seen = len(origin.looks())
        wait_for(lambda: len(origin.looks()) > seen + 1, "it looked no more")
        assert edge.windows() == {}
    # Nor does a process that begins anew put it back.
    code, report, _ = once(edge, origin)
    assert (code, report["reason"], edge.windows()) == (0, "withdrawn here after it was made", {})
    time.sleep(1.1)
    origin.offer({NAME: edge.write(bundle(NEXT))})
    assert once(edge, origin)[0] == 0
    assert edge.windows() == NEXT


@pytest.mark.parametrize("lost", ["state", "nothing"])
def test_what_was_made_before_a_withdrawal_is_not_taken_after_it(edge: Edge, origin: Origin, lost: str) -> None:
    assert edge.apply(FIRST).code == 0
    made = edge.write(bundle(NEXT))
    assert edge.run("withdraw").code == 0
    if lost == "state":
        shutil.rmtree(edge.state_dir)
    origin.offer({NAME: made})
    assert once(edge, origin)[0] == 0
    assert edge.windows() == {}
    # Root's own word comes after the withdrawal.
    assert edge.run("apply", made).code == 0
    assert edge.windows() == NEXT


def test_a_younger_bundle_that_has_expired_ends_what_it_came_to_replace(edge: Edge, origin: Origin) -> None:
    now = time.time()
    assert edge.run("apply", edge.write(bundle(FIRST, now=now - 100))).code == 0
    origin.offer({NAME: edge.write(bundle(NEXT, now=now - 200, ttl=20))})
    assert (once(edge, origin)[0], edge.windows()) == (EXPIRED, FIRST), "an older one ends nothing"
    origin.offer({NAME: edge.write(bundle(NEXT, now=now - 50, ttl=20))})
    code, report, _ = once(edge, origin)
    assert (code, report["changed"], edge.windows()) == (0, True, {})
    assert "in its place" in str(report["reason"])
    origin.offer({NAME: edge.write(bundle(NEXT, now=now - 10))})
    assert once(edge, origin)[0] == 0
    assert edge.windows() == NEXT


# Cuts its first answer, as a proxy does that fails. By the tag of what it cut nobody gets the rest.
CUTS = """
import socket, sys
whole = open(sys.argv[1], "rb").read()
cut = len(whole) // 2
server = socket.create_server(("127.0.0.1", 8080))
while True:
    client, _ = server.accept()
    if b'"tag"' in client.recv(65536):
        client.sendall(b"HTTP/1.1 304 Not Modified\\r\\nConnection: close\\r\\n\\r\\n")
    else:
        client.sendall(b'HTTP/1.0 200 OK\\r\\nETag: "tag"\\r\\n\\r\\n' + whole[:cut])
    cut = len(whole)
    client.close()
"""


def test_an_answer_that_was_cut_is_fetched_again(edge: Edge, tmp_path: Path) -> None:
    origin = Origin(edge.name, tmp_path, "127.0.0.1", None)
    origin.offer({NAME: edge.write(bundle(FIRST))})
    command = ["ip", "netns", "exec", edge.name, sys.executable, "-c", CUTS, str(origin.folder / f"{NAME}.bundle")]
    with subprocess.Popen(command) as server:
        try:
            with service(edge, origin):
                wait_for(lambda: edge.windows() == FIRST, "the rest was not fetched")
        finally:
            server.terminate()


def signed(edge: Edge, document: dict[str, object]) -> bytes:
    """As an origin offers it."""
    path = Path(edge.write(document))
    return path.with_name(f"{path.name}.sig").read_bytes() + path.read_bytes()


def of_another_key(edge: Edge) -> bytes:
    path = Path(edge.write(bundle(NEXT)))
    return sign(path, make_key(edge.directory / "unknown")).read_bytes() + path.read_bytes()


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda edge: Path(edge.write(bundle(NEXT))).read_bytes(), 10),
        (of_another_key, 11),
        (lambda edge: signed(edge, bundle(NEXT)).replace(b'"initcwnd":44', b'"initcwnd":99'), 12),
        (lambda edge: signed(edge, bundle(NEXT, edge="ams-2")), 13),
        (lambda edge: signed(edge, bundle(NEXT, now=time.time() - 400)), 14),
        (lambda _: b"", 10),
        (lambda _: b"\0" * 1000, 10),
        (lambda _: b"-----END SSH SIGNATURE-----\n", 12),
        (lambda _: b"<html>not found</html>", 10),
    ],
    ids=["unsigned", "another-key", "altered", "another-edge", "older", "empty", "zeros", "no-bundle", "html"],
)
def test_what_is_not_a_newer_bundle_of_this_edge_changes_nothing(
    edge: Edge, origin: Origin, made: Callable[[Edge], bytes], code: int
) -> None:
    origin.offer({NAME: edge.write(bundle(FIRST))})
    assert once(edge, origin)[0] == 0
    origin.put(NAME, made(edge))
    found, report, errors = once(edge, origin)
    assert (found, edge.windows()) == (code, FIRST), report
    assert f"{origin.url}/{NAME}.bundle: " in errors
    # The message about a missing signature does not say how to do without one.
    assert ("what the origin sent is not a signed bundle" in errors, "--unsigned" in errors) == (code == 10, False)
    # The next good one is taken.
    origin.offer({NAME: edge.write(bundle(NEXT))})
    assert once(edge, origin)[0] == 0
    assert edge.windows() == NEXT


def test_an_origin_by_tls_is_judged_by_the_certificates_that_are_given(edge: Edge, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with Origin.made(edge.name, tmp_path, certificate=certificate.served) as origin:
        origin.offer({NAME: edge.write(bundle(FIRST))})
        code, _, errors = once(edge, origin)
        assert (code, "certificate" in errors, edge.windows()) == (1, True, {})
        assert once(edge, origin, "--ca", str(certificate.trusted))[0] == 0
        assert edge.windows() == FIRST


@pytest.mark.parametrize("url", ["bundles.example", "ftp://h/", "http://me:secret@h/", "http://h/?x=1", ""])
def test_an_origin_that_is_no_address_is_refused(edge: Edge, url: str) -> None:
    done = edge.run("pull", "--once", "--origin", url)
    assert (done.code, "write http://HOST/PATH" in done.errors) == (2, True)


def test_a_rollout_offers_wave_by_wave_and_comes_back(farm: Farm) -> None:
    held = {"10.200.1.0/24": 30, "10.200.2.0/24": 40}
    with Origin.made(farm.namespace, farm.directory, "10.99.0.1") as origin, pullers(farm, origin):
        settings: dict[str, Any] = {"springtide_origin_asked": 1, "springtide_origin_wait_s": 5}
        farm.publish(farm.documents(later=-3))
        (farm.publish_dir / "origin").symlink_to(origin.folder)
        # While the gate looks at the first wave, the others are offered nothing.
        gate = farm.script(f"ls {origin.folder} > {farm.directory}/offered.$wave; exit 0")
        done = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=gate, **settings)
        assert done.code == 0, done.output
        assert farm.windows() == dict.fromkeys(farm.edges, held)
        first, last = (len((farm.directory / f"offered.{wave}").read_text().split()) for wave in (1, 2))
        assert (first, last) == (2, 3)
        waves = [line for line in farm.journal() if line["event"] == "wave"]
        assert sorted(edge for wave in waves for edge in wave["details"]["changed"]) == sorted(farm.edges)

        farm.publish(farm.documents(NEW))
        harm = farm.script('[ "$wave" = 1 ] || { echo "roll back: harm"; exit 4; }')
        failed = farm.play("rollout.yml", springtide_gate=True, springtide_gate_command=harm, **settings)
        assert failed.code == 2, failed.output
        assert "all 3 are offered it" in failed.output
        wait_for(lambda: farm.windows() == dict.fromkeys(farm.edges, held), "the way back was not taken")

        # Nobody answers over ssh, and the edges go back all the same.
        for node in farm.edges.values():
            node.stop()
        gone = farm.play("withdraw.yml", springtide_reason="test")
        assert (gone.code, "NOT confirmed as withdrawn" in gone.output) == (2, True), gone.output
        wait_for(lambda: farm.windows() == {name: {} for name in farm.edges}, "the withdrawal was not taken")
        refused = farm.play("rollback.yml", springtide_resume=True)
        assert (refused.code, "take a newer round only" in refused.output) == (2, True), refused.output


def test_a_wave_that_does_not_fetch_its_bundles_is_not_cleared(farm: Farm) -> None:
    held, origin, target = farm.hold(), farm.publish_dir / "origin", farm.directory / "served"
    origin.symlink_to(target)
    farm.publish(farm.documents(NEW))
    missing = farm.play("rollout.yml")
    assert (missing.code, "leads to no folder" in missing.output) == (2, True), missing.output
    target.mkdir()
    farm.publish(farm.documents(NEW, later=3))
    failed = farm.play("rollout.yml", springtide_origin_wait_s=0)
    assert failed.code == 2, failed.output
    assert "had not fetched their bundles" in failed.output
    assert farm.windows() == dict.fromkeys(farm.edges, held)


def test_a_wave_that_is_not_offered_whole_is_not_cleared(farm: Farm) -> None:
    origin = farm.publish_dir / "origin"
    for name in farm.edges:
        (origin / f"{name}.bundle").mkdir(parents=True)
    farm.publish()
    failed = farm.play("rollout.yml", springtide_origin_wait_s=0)
    assert (failed.code, "cannot be written" in failed.output) == (2, True), failed.output
    assert farm.windows() == {name: {} for name in farm.edges}
    assert [line["verdict"] for line in farm.journal() if line["event"] == "wave"] == ["failed"]


@contextmanager
def silent(folder: Path) -> Iterator[None]:
    """As a file server that is away: whoever looks into the folder waits, and only SIGKILL ends that."""
    with Path("/dev/fuse").open("r+b", buffering=0) as nobody:
        options = f"fd={nobody.fileno()},rootmode=40000,user_id=0,group_id=0"
        command = ["mount", "-i", "-t", "fuse", "-o", options, "springtide-test", str(folder)]
        subprocess.run(command, check=True, pass_fds=[nobody.fileno()])
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """As a disk that hangs: it can be read, whoever writes waits, and not even SIGKILL ends that."""
    image = folder.with_name("image")
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        subprocess.run(["fsfreeze", "--freeze", str(folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("hang", [silent, frozen])
def test_an_origin_on_a_disk_that_hangs_does_not_hold_up_a_withdrawal(
    farm: Farm, hang: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """The play ends while the disk still hangs. A step has 15 s: on an edge one takes less than two."""
    farm.hold()
    origin = farm.directory / "served"
    origin.mkdir()
    (farm.publish_dir / "origin").symlink_to(origin)
    with hang(origin):
        gone = farm.play("withdraw.yml", springtide_step_s=15)
    assert farm.windows() == {name: {} for name in farm.edges}
    assert (gone.code, "every edge is withdrawn; STILL OFFERED" in gone.output) == (2, True), gone.output
