"""The eBPF enforcement on real sockets: what connections start with, what is left behind, and what faults do to it.

Long: one program under every use and fault, over one host.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.connections import own_network
from testkit import bpf
from testkit.bpf import PRELUDE, Program, ask, shown
from testkit.loopback import on_loopback

pytestmark = pytest.mark.root

NO_CAP = 0xFFFFFFFF


@pytest.fixture(scope="module")
def made() -> Iterator[Program]:
    with own_network(), bpf.program(f"stt{os.getpid()}") as found:
        # As on a network: loopback's own segments hold more than a first window.
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
        yield found


@pytest.fixture
def program(made: Program) -> Iterator[Program]:
    yield made
    made.withdraw()


def entry(prefix: str, **values: Any) -> dict[str, Any]:
    return {"prefix": prefix, **values}


def objects() -> set[tuple[str, int]]:
    """Every program, map and link of this kernel that is not in the making or going."""
    return {(kind, one["id"]) for kind in ("prog", "map", "link") for one in shown(kind)}


def until(what: Callable[[], bool], within_s: float = 20) -> None:
    """It comes in 0.1 s, or a second after a bundle's end; the bound is for a machine that stands still."""
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, f"it did not come in {within_s} s"
        time.sleep(0.02)


def until_all_new_are_gone(before: set[tuple[str, int]]) -> None:
    """Waits for those that are there now, of other tests too. What comes later does not count: no id is used twice."""
    new = objects() - before

    def gone() -> bool:
        new.intersection_update(objects())
        return not new

    until(gone, within_s=600)


def test_connections_start_with_the_longest_match_in_both_families_and_directions(program: Program) -> None:
    program.apply(
        {
            "excluded": ["127.0.9.0/24"],
            "entries": [
                entry("::/0", initcwnd=77),
                entry("127.0.0.0/8", initcwnd=30),
                entry("127.0.2.0/24", initcwnd=40, start_rate=5_000_000),
                entry("127.0.9.9/32", initcwnd=50),
                entry("::1/128", initcwnd=60),
            ],
        }
    )
    code = """
found = {}
for name, hosts in {"wide": ["127.0.0.1"], "long": ["127.0.2.1"], "excluded": ["127.0.9.9"], "six": ["::1"],
                    "mapped": ["127.0.2.1", "::"]}.items():
    opener, accepted = pair(*hosts)
    found[name] = [window(opener), window(accepted), capped(opener), capped(accepted)]
print(json.dumps(found))
"""
    found = ask(program, code)
    default = found["excluded"][0]
    assert default == 10
    # A connection to 127.0.2.1 comes from 127.0.0.1: the accepted end matches the wider entry.
    assert found["wide"] == [30, 30, False, False]
    assert found["long"] == [40, 30, True, False]
    assert found["excluded"][0] == 10
    assert not found["excluded"][2]
    assert found["six"] == [60, 60, False, False]
    # An IPv4 client on a socket of both families is IPv4, and no IPv6 prefix takes it.
    assert found["mapped"] == [40, 30, True, False]
    totals = program.status()["totals"]
    assert (totals["started"], totals["excluded"]) == (9, 1)


def test_an_ipv6_prefix_over_the_mapped_addresses_takes_no_ipv4(program: Program) -> None:
    program.apply({"entries": [entry("::/0", initcwnd=77)]})
    assert ask(program, "print([window(pair('127.0.0.1')[0]), window(pair('::1')[0])])") == [10, 77]


def test_excluding_all_of_ipv6_excludes_no_ipv4(program: Program) -> None:
    program.apply({"excluded": ["::/0"], "entries": [entry("127.0.0.0/8", initcwnd=30), entry("::1/128", initcwnd=60)]})
    assert ask(program, "print([window(pair('127.0.0.1')[0]), window(pair('::1')[0])])") == [30, 10]


def test_a_socket_that_is_connected_again_keeps_nothing_of_its_last_connection(program: Program) -> None:
    congestion = {"algorithm": "reno", "from_bytes": 1000}
    values = entry("127.0.2.0/24", initcwnd=40, start_rate=5_000_000, congestion=congestion)
    program.apply({"excluded": ["127.0.9.0/24"], "entries": [values]})
    code = """
import ctypes
found, used = [], socket.socket()
used.setsockopt(6, TCP_CONGESTION, b"cubic")
for host in ("127.0.2.1", "127.0.9.9", "127.0.2.1"):
    listener = socket.create_server((host, 0))
    used.connect(listener.getsockname())
    accepted = listener.accept()[0]
    found.append([window(used), capped(used)])
    if host == "127.0.9.9":
        move(used, accepted, 500_000)
        found[-1].append(algorithm(used))
    # AF_UNSPEC ends the connection and keeps the socket.
    assert ctypes.CDLL(None).connect(used.fileno(), bytes(16), 16) == 0
    found[-1].append(capped(used))
print(json.dumps(found))
"""
    assert ask(program, code) == [[40, True, False], [10, False, "cubic", False], [40, True, False]]
    assert program.status()["totals"]["own_rate"] == 0


def test_the_cap_is_lifted_once_the_bytes_are_acknowledged_and_the_algorithm_follows(program: Program) -> None:
    congestion = {"algorithm": "bbr", "from_bytes": 100_000}
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=20, start_rate=20_000_000, congestion=congestion)]})
    code = """
before, ends = [], []
for size in (50_000, 5_000_000):
    opener, accepted = pair("127.0.0.1")
    for one in (opener, accepted):
        one.setsockopt(6, TCP_CONGESTION, b"cubic")
    before.append(rate(accepted))
    move(accepted, opener, size)
    ends.append([rate(accepted), algorithm(accepted)])
print(json.dumps([before, ends]))
"""
    before, ends = ask(program, code)
    assert max(before) <= 20_000_000
    assert ends[0][1] == "cubic"
    assert ends[1] == [NO_CAP, "bbr"]
    assert program.status()["totals"]["switched"] == 1


def test_a_cap_of_the_application_stays(program: Program) -> None:
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=20, start_rate=20_000_000)]})
    code = """
listener = socket.create_server(("127.0.0.1", 0))
opener = socket.socket()
opener.setsockopt(1, MAX_PACING, 3_000_000)
opener.connect(listener.getsockname())
accepted = listener.accept()[0]
first = rate(opener)
move(opener, accepted, 1_000_000)
print(json.dumps([first, rate(opener), window(opener) >= 20]))
"""
    assert ask(program, code) == [3_000_000, 3_000_000, True]
    assert program.status()["totals"]["own_rate"] == 1


def test_a_refused_value_is_counted_and_the_connection_lives(program: Program) -> None:
    congestion = {"algorithm": "nosuch", "from_bytes": 0}
    program.apply({"entries": [entry("127.0.0.0/8", congestion=congestion)]})
    assert ask(program, "a, b = pair('127.0.0.1'); move(a, b, 10_000); print(1)") == 1
    assert program.status()["totals"]["refused_algorithm"] == 2


def test_a_receiver_announces_the_window_that_is_asked_for(program: Program) -> None:
    code = """
opener, accepted = pair("127.0.0.1")
# tcpi_snd_wnd: what the other end has announced.
announced = [struct.unpack_from("I", one.getsockopt(6, 11, 256), 228)[0] for one in (opener, accepted)]
print(announced)
"""
    assert min(ask(program, code)) > 20_000
    program.apply({"entries": [entry("127.0.0.0/8", receive_window=4)]})
    # Rounded up by the window's scale.
    assert max(ask(program, code)) < 5 * 1460
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=30)]})
    assert min(ask(program, code)) > 20_000


def test_a_share_of_the_connections_gets_the_trial(program: Program) -> None:
    trial = {"permille": 300, "initcwnd": 33}
    program.apply({"record_permille": 1000, "entries": [entry("127.0.0.0/8", initcwnd=22, trial=trial)]})
    code = "ends = [pair('127.0.0.1') for _ in range(200)]; print([window(one) for two in ends for one in two])"
    windows = ask(program, code)
    assert set(windows) == {22, 33}
    # 400 draws of 0.3 are five standard deviations off with odds of 8e-7.
    assert abs(windows.count(33) - 120) < 5 * (400 * 0.3 * 0.7) ** 0.5
    records = program.records()
    assert sorted(one["window"] for one in records) == sorted(windows)
    assert all(one["trial"] == (one["window"] == 33) for one in records)
    status = program.status()["prefixes"][0]
    assert (status["entry"]["started"], status["trial"]["started"]) == (windows.count(22), windows.count(33))


def test_what_a_bundle_does_not_name_leaves_records_of_the_kernels_own_start(program: Program) -> None:
    on_loopback(["10.9.7.1", "10.9.8.1", "10.9.9.1", "fd09::9"])
    values = {"excluded": ["10.9.8.0/24"], "entries": [entry("10.9.7.0/24", initcwnd=30)]}
    program.apply({"record_permille": 1000, **values})
    code = """
found = {}
for host in ("10.9.7.1", "10.9.8.1", "10.9.9.1", "fd09::9", "127.0.0.1", "::1"):
    opener, accepted = pair(host)
    move(opener, accepted, 200_000)
    found[host] = window(accepted)
print(json.dumps(found))
"""
    assert ask(program, code) == {"10.9.7.1": 30} | dict.fromkeys(
        ["10.9.8.1", "10.9.9.1", "fd09::9", "127.0.0.1", "::1"], 10
    )
    found = Counter(
        (one["prefix"], one["window"], one["rate"], bool(one["acked_100k_us"])) for one in program.records()
    )
    # Both ends of each; those that sent were acknowledged.
    places = (("10.9.7.0/24", 30), ("0.0.0.0/0", None), ("::/0", None))
    assert found == Counter((prefix, window, None, sent) for prefix, window in places for sent in (False, True))
    status = program.status()
    assert status["totals"]["untreated"] == 0, "only entries count what they leave alone"
    assert [one["prefix"] for one in status["prefixes"]] == ["10.9.7.0/24"]
    program.apply(values)
    ask(program, "pair('10.9.9.1'); print(1)")
    assert program.records() == []
    program.apply({"record_permille": 1000, "opted_out": [{"prefix": "10.9.9.0/24"}]})
    ask(program, "pair('10.9.9.1'); print(1)")
    assert program.records() == []
    assert program.status()["totals"]["opted_out"] == 0


def test_past_its_time_a_bundle_does_nothing_though_nobody_withdraws_it(program: Program) -> None:
    """A turn in which a busy machine was slower than the bundle's time is done again, with four times as long. The last
    one fails only after a delay of 31 s."""
    for expires_in_s in (2, 8, 32):
        begun = time.monotonic()
        program.apply({"expires_in_s": expires_in_s, "entries": [entry("127.0.0.0/8", initcwnd=30)]})
        window = ask(program, "print(window(pair('127.0.0.1')[0]))")
        # Times are whole seconds.
        if time.monotonic() - begun < expires_in_s - 1:
            break
        program.withdraw()
    assert window == 30
    until(lambda: program.status()["expired"], within_s=60)
    assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 10
    assert program.status()["totals"]["expired"] == 2
    # A newer one counts again.
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=31)]})
    assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 31


def test_the_budget_returns_to_zero_whatever_way_connections_end(program: Program) -> None:
    program.apply({"record_permille": 1000, "entries": [entry("127.0.0.0/8", initcwnd=20, start_rate=10_000_000)]})
    code = """
kept = [pair("127.0.0.1") for _ in range(8)]
for opener, accepted in kept:
    fill(opener), fill(accepted)
for number, (opener, accepted) in enumerate(kept):
    if number % 4 == 0:      # reset
        opener.setsockopt(1, 13, struct.pack("ii", 1, 0)); opener.close(); accepted.close()
    elif number % 4 == 1:    # closed in order, by the accepted end
        accepted.close(); opener.close()
    elif number % 4 == 2:    # in both directions at once
        opener.shutdown(2)
        try:
            accepted.shutdown(2)
        except OSError:      # on a busy machine the kernel has reset it by then: data came to an end that is closed
            pass
        opener.close(); accepted.close()
    # the others end with the process
print(1)
"""
    ask(program, code)
    # Both ends of each are to 127/8: 16 starts, each at once with those before it.
    until(lambda: program.status()["prefixes"][0]["in_first_flights"] == 0)
    assert sorted(one["at_once"] for one in program.records()) == list(range(1, 17))
    # Connections that were at once lately still count.
    ask(program, "a, b = pair('127.0.0.1'); fill(a), fill(b); print(1)")
    assert [one["at_once"] for one in program.records()] == [16, 16]


def test_a_full_map_of_prefixes_leaves_further_ones_alone_and_fails_no_connection(program: Program) -> None:
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=20), entry("::1/128", initcwnd=21)]})
    assert ask(program, "print(window(pair('::1')[0]))") == 21
    bpf.fill(program.pins / "v6/states")
    assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 10
    assert program.status()["totals"]["no_state"] == 2
    assert ask(program, "print(window(pair('::1')[0]))") == 21, "a prefix that is known goes on"
    # The next bundle makes room.
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=20)]})
    assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 20


def test_a_full_ring_buffer_costs_records_and_no_connection(program: Program) -> None:
    program.apply({"record_permille": 1000, "entries": [entry("127.0.0.0/8", initcwnd=20)]})
    # 1 MB of records of 168 bytes, with a header each, and two records a connection.
    ask(program, "for _ in range(4000): [one.close() for one in pair('127.0.0.1')]\nprint(1)")
    until(lambda: sum(program.status()["totals"][name] for name in ("records", "records_lost")) == 8000)
    totals = program.status()["totals"]
    assert totals["started"] == 8000
    assert totals["records_lost"] > 0
    assert len(program.records()) == totals["records"] == (1 << 20) // 184


def test_a_directory_that_another_user_made_for_the_pins_is_not_used(program: Program) -> None:
    """Where the BPF file system is open to all: its owner could take the pins away, and with them the program."""
    program.pins.mkdir()
    os.chown(program.pins, 65534, 65534)
    with pytest.raises(AssertionError, match="others than this user can write it"):
        program.apply({"entries": [entry("127.0.0.0/8", initcwnd=20)]})
    program.pins.rmdir()


def test_connections_that_are_silent_take_no_share_of_the_rate(program: Program) -> None:
    """A client that opens many and asks for nothing would leave the others next to nothing."""
    program.apply({"record_permille": 1000, "entries": [entry("127.0.0.0/8", initcwnd=20, start_rate=10_000_000)]})
    code = """
silent = [pair("127.0.0.1") for _ in range(100)]
opener, accepted = pair("127.0.0.1")
fill(opener)
print(json.dumps([rate(opener), rate(silent[50][0])]))
"""
    alone, held = ask(program, code)
    assert alone == 10_000_000
    assert held < 0xFFFFFFFF, "it has its cap for when it sends"
    assert sum(one["at_once"] > 0 for one in program.records()) == 1


def test_a_swap_keeps_counters_and_open_starts_and_forgets_prefixes_that_are_gone(program: Program) -> None:
    both = [entry("127.0.0.0/8", initcwnd=20, start_rate=10_000_000), entry("::1/128", initcwnd=20)]
    program.apply({"entries": both})
    keep = "kept = pair('127.0.0.1'), pair('::1'); list(map(fill, kept[0])); print(1, flush=True); sys.stdin.read()"
    holder = program.popen(PRELUDE + keep, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"1\n"
        assert program.apply({"round": 2, "entries": both[:1]})["generation"] == 2
        status = program.status()["prefixes"]
        assert [(one["prefix"], one["in_first_flights"], one["entry"]["started"]) for one in status] == [
            ("127.0.0.0/8", 2, 2)
        ]
    finally:
        holder.stdin.close()
        holder.wait(20)
    until(lambda: program.status()["prefixes"][0]["in_first_flights"] == 0)


def test_withdrawal_leaves_nothing_and_lifts_caps_of_open_connections(made: Program) -> None:
    before = objects()
    congestion = {"algorithm": "bbr", "from_bytes": 0}
    made.apply({"entries": [entry("127.0.0.0/8", initcwnd=20, start_rate=1_000_000, congestion=congestion)]})
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    code = f"""
import subprocess
opener, accepted = pair("127.0.0.1")
first = [capped(opener), capped(accepted)]
for one in (opener, accepted):
    one.setsockopt(6, TCP_CONGESTION, b"cubic")
subprocess.run(["{made.binary}", "--cgroup", "{made.cgroup}", "--pins", "{made.pins}", "withdraw", "--restore"],
               check=True, stdout=subprocess.DEVNULL)
print(json.dumps([first, rate(opener), rate(accepted), algorithm(opener)]))
"""
    assert ask(made, code) == [[True, True], NO_CAP, NO_CAP, default]
    assert not made.pins.exists()
    until_all_new_are_gone(before)
    assert made.withdraw()["changed"] is False


@pytest.mark.parametrize("above", [True, False])
def test_callbacks_that_another_program_wants_stay(made: Program, above: bool) -> None:
    """One of two, on the same cgroup and above, waits for bytes when the other one has nothing left to do."""
    inner = Program(made.binary, made.cgroup / "inner", made.pins.with_name(f"{made.pins.name}-inner"))
    inner.cgroup.mkdir()
    congestion = {"algorithm": "bbr", "from_bytes": 2_000_000}
    try:
        waits, is_done = (made, inner) if above else (inner, made)
        waits.apply({"entries": [entry("127.0.0.0/8", congestion=congestion)]})
        is_done.apply({"entries": [entry("127.0.0.0/8", initcwnd=20)]})
        code = """
opener, accepted = pair("127.0.0.1")
opener.setsockopt(6, TCP_CONGESTION, b"cubic")
move(opener, accepted, 20_000_000)
print(json.dumps(algorithm(opener)))
"""
        assert ask(inner, code) == "bbr"
        assert len(inner.status()["others"]) == 1, "from above"
        assert made.status()["others"] == []
    finally:
        inner.withdraw()
        made.withdraw()
        inner.cgroup.rmdir()


def test_what_others_did_is_drift_and_repaired(program: Program) -> None:
    bundle = {"entries": [entry("127.0.0.0/8", initcwnd=30)]}
    pins = program.pins / "v6"

    def repaired(drift: str, how: str) -> None:
        status = program.status()
        assert any(drift in one for one in status["drift"]), status["drift"]
        assert program.apply(bundle)["program"] == how
        status = program.status()
        assert (status["drift"], status["attached"]) == ([], True)
        assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 30

    assert program.apply(bundle)["program"] == "new"
    assert program.apply(bundle)["program"] == "kept"
    subprocess.run(["bpftool", "link", "detach", "pinned", pins / "link"], check=True)
    assert ask(program, "print(window(pair('127.0.0.1')[0]))") == 10
    repaired("not on the cgroup", "attached")
    (pins / "link").unlink()
    repaired("link is gone", "attached")
    program.cgroup.rmdir()
    program.cgroup.mkdir()
    repaired("not on the cgroup", "attached")
    (pins / "totals").unlink()
    repaired("map totals is gone", "new")
    (program.pins / "v6-new").mkdir()
    repaired("v6-new", "kept")


def test_an_upgrade_has_no_gap_and_keeps_counters(program: Program) -> None:
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=30)]})
    stop = threading.Event()
    seen: list[list[int]] = []

    def connect() -> None:
        while not stop.is_set():
            seen.append(ask(program, "print(sorted({window(pair('127.0.0.1')[0]) for _ in range(100)}))"))

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        for _ in range(5):
            # As an older command leaves it: another object's hash stands in `about`.
            about = program.pins / "v6/about"
            text = subprocess.run(
                ["bpftool", "-j", "map", "dump", "pinned", about], capture_output=True, text=True, check=True
            )
            value = [int(byte, 16) for byte in json.loads(text.stdout)[0]["value"]]
            value[72:104] = [1] * 32
            words = [str(byte) for byte in value]
            command = ["bpftool", "map", "update", "pinned", str(about), "key", "0", "0", "0", "0", "value", *words]
            subprocess.run(command, check=True)
            assert program.apply({"entries": [entry("127.0.0.0/8", initcwnd=30)]})["program"] == "upgraded"
    finally:
        stop.set()
        thread.join()
    assert seen
    assert {window for windows in seen for window in windows} == {30}
    status = program.status()
    assert status["drift"] == []
    assert status["totals"]["started"] == 200 * len(seen)


def test_a_killed_step_is_repaired_and_no_connection_fails(made: Program) -> None:
    """SIGKILL at random moments of apply and withdraw, while connections are made."""
    before = objects()
    random_ = random.Random(15)
    bundle = {"entries": [entry(f"127.{number}.0.0/16", initcwnd=30) for number in range(200)]}
    file = Path(f"/tmp/{made.cgroup.name}-killed.json")  # noqa: S108 - named by this process
    file.write_text(json.dumps(bundle))
    stop = threading.Event()
    windows: list[list[int]] = []

    def connect() -> None:
        while not stop.is_set():
            windows.append(ask(made, "print([window(pair('127.0.0.1')[0]) for _ in range(50)])"))

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        for turn in range(60):
            task = ["withdraw"] if turn % 4 == 3 else ["apply", str(file)]
            command = [str(made.binary), "--cgroup", str(made.cgroup), "--pins", str(made.pins), *task]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(random_.uniform(0, 0.06))
            child.send_signal(signal.SIGKILL)
            _, complaint = child.communicate()
            # It was killed, or had ended well.
            assert child.returncode in (-signal.SIGKILL, 0), complaint
            made.status()
        made.apply(bundle)
        status = made.status()
        assert (status["drift"], status["attached"]) == ([], True)
    finally:
        stop.set()
        thread.join()
        file.unlink()
    assert {window for some in windows for window in some} <= {10, 30}
    made.withdraw()
    assert not made.pins.exists()
    until_all_new_are_gone(before)


@pytest.mark.parametrize(
    ("prefix", "places", "message"),
    [
        ([], {"pins": Path("/tmp/no-bpf-fs")}, "is on no BPF file system"),  # noqa: S108 - is not made
        ([], {"cgroup": Path("/sys/fs/cgroup/none")}, "is no directory of cgroup2"),
        (["setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin"], {}, "lacks CAP_BPF:"),
        (["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"], {}, "lacks CAP_NET_ADMIN"),
    ],
)
def test_why_a_host_cannot_is_one_line(made: Program, prefix: list[str], places: dict[str, Path], message: str) -> None:
    where = {"cgroup": made.cgroup, "pins": made.pins} | places
    command = [*prefix, str(made.binary), "--cgroup", str(where["cgroup"]), "--pins", str(where["pins"]), "support"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_three_capabilities_suffice(made: Program) -> None:
    kept = "-all,+bpf,+perfmon,+net_admin"
    command = ["setpriv", "--bounding-set", kept, "--inh-caps", kept, str(made.binary), "--cgroup", str(made.cgroup)]
    done = subprocess.run([*command, "--pins", str(made.pins), "support"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
