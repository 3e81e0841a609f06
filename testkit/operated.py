"""The fleet of `history` as it is operated: both laws decided, rounds published, gates run, one rolled back."""

from __future__ import annotations

from springtide import instants
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

from testkit.history import ROUNDS
from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import Socket

# So few edges, prefixes and rounds that a test can have them, and both sides of each comparison.
POLICY = """\
initcwnd: {duty_rounds: 1}
holdout: {min_edges: 2, edge_share: 0.5}
gate: {min_connections: 1}
congestion:
  {window_rounds: 8, min_rounds: 2, min_prefixes: 2, min_connections: 1, min_samples: 1, min_bytes: 1,
   benefit_rounds: 2, min_stay_s: 600, low_share: 0.5, enter_duty: 0.5, leave_duty: 0.2, max_flap_rate: 1.0,
   max_selected: 2,
   holdout_share: 0.4}
"""


def operate(home: Home, now: list[int]) -> None:
    """Operate a home with that history; `now` holds the time that `springtide.instants.now` returns."""
    home.policy.write_text(POLICY)
    for moment in ROUNDS[-5:]:
        at = instants.show(moment)
        home.run("decide", "initcwnd", "--round", at)
        home.run("decide", "congestion", "--round", at)
    _roll_out(home, now)
    _arrive_oddly(home)
    _start(home)
    _recover(home)
    _measure(home)


def _roll_out(home: Home, now: list[int]) -> None:
    folder = home.path / "publish"
    where = ("--publish-dir", folder)
    for moment in (ROUND - 600, ROUND - 300):
        # Before the connections of the next round begin.
        now[0] = moment + 5
        made = home.json("publish", "--round", instants.show(moment), *where, "--force", "--reason", "a first time")
        now[0] += 10
        journal.append(folder, journal.Event("rollout", publication=made["publication"], verdict="begun"))
        wave = journal.Event("wave", publication=made["publication"], verdict="applied", edges=["ams-1"])
        journal.append(folder, wave)
        PublishFolder(folder).point("current", folder / made["publication"] / "edges")
        now[0] = moment + 295
        arguments = ("--publication", made["publication"], "--wave", 1, "--changed", "ams-1", "--unchanged", "ams-2")
        home.json("gate", *where, *arguments, code=0)
    now[0] = ROUND - 1
    home.run("rollback", PublishFolder(folder).rounds()[0], *where, "--reason", "a trial")
    for verdict, edges in (("found", ["ams-2", "fra-1"]), ("repaired", ["ams-2", "fra-1"]), ("none", [])):
        journal.append(folder, journal.Event("drift", verdict=verdict, edges=edges))
    home.run("pause", "--reason", "a storm", *where)
    home.run("resume", *where)
    now[0] = ROUND + 120
    home.json("history", *where)


def _arrive_oddly(home: Home) -> None:
    """An invalid spool file, and samples after their round was computed."""
    (home.spool / "torn.spool").write_bytes(b"STB1 this is no record")
    late = Socket("fra-1", 99_999, "10.77.2.1", "192.0.2.9", "fra")
    # By another program than the others: what it started with is known.
    late.more.update(started_round=ROUND - 300, started_window=33, started_rate=0, started_arm=1, started_step=0)
    write_spool(home.spool, "late", [record([late.at(ROUND - 50, ROUND // 300 % 1000 * 5 + 103, 1_000_000)])])
    home.run("ingest", home.spool, code=2)
    home.run("rollup")


def _start(home: Home) -> None:
    """Starts as the law leaves them, which decides none for edges by routes: in use, on trial, held, and none."""
    path = {"part": "start", "src_pop": "ams", "ip_version": 4, "min_rtt_us": 80_000, "reason": "trains"}
    used = {"action": "set", "window": 90, "connection_rate": 12_500_000.0, "path_rate": 25_000_000.0}
    seen = {"flights_0": 400, "lossy_0": 8, "t100_0_us": 92_400, "default_t100_us": 247_000.0, "braked": 2}
    tried = {"trial_window": 60, "trial_connection_rate": 5_000_000.0, "trial_path_rate": 5_000_000.0}
    beside = {"flights_1": 90, "lossy_1": 3, "default_flights": 100.0, "default_lossy": 2.0}
    opened = home.open()
    for moment in ROUNDS[-2:]:
        held = {"action": "none", "reason": "harm", "hold_until": moment + 3600, "hold_s": 3600}
        states = {
            "fra": used | seen,
            "nyc": tried | beside | {"action": "try", "trial_permille": 500},
            "203.0.113.0/24": held,
            "198.51.100.0/24": {"action": "none", "reason": "no_evidence"},
        }
        for to, state in states.items():
            opened.insert("path_decisions", [path | {"round": moment, "destination": to} | state])
    opened.close()


def _recover(home: Home) -> None:
    """Timeouts of handshakes, and copies, as the law leaves them: its edges enforce by routes, so that it decides none
    itself."""
    path = {"part": "recovery", "src_pop": "ams", "destination": "fra", "ip_version": 4, "action": "set"}
    seen = {"treated": 900, "treated_resent": 45, "control": 100, "control_resent": 4, "handshakes": 1000}
    seen |= {"copied": 900, "copied_lossy": 27, "uncopied": 100, "uncopied_lossy": 8}
    seen |= {"copied_10k_us": 190_000, "uncopied_10k_us": 240_000, "copied_bytes": 20_000}
    values = {"copies_reason": "lossy", "handshake_timeout_ms": 180, "treated_ms": 180, "reason": "learnt"}
    opened = home.open()
    opened.insert("path_decisions", [path | seen | values | {"round": moment} for moment in ROUNDS[-2:]])
    opened.close()


def _measure(home: Home) -> None:
    """Writes what is kept of the day, and two percentiles of a path as edges that pace would show them."""
    home.run("measure", "--round", instants.show(ROUND))
    path = {"law": "start", "units": "decided", "method": "untreated share", "by": "path", "group": "ams to fra, IPv4"}
    of = {"src_pop": "ams", "destination": "fra", "ip_version": 4, "treated": 4900, "held_out": 100}
    slower = {"outcome": "time of 100 kB, p95", "effect": 0.2, "low": 0.1, "high": 0.3, "reading": "worse"}
    faster = {"outcome": "time of 100 kB, p50", "effect": -0.5, "low": -0.6, "high": -0.4, "reading": "better"}
    both = {"since": ROUND - 86_400, "until": ROUND, "treated_us": 120_000.0, "held_out_us": 100_000.0}
    opened = home.open()
    opened.insert("benefits", [path | of | both | one for one in (slower, faster)])
    opened.close()
