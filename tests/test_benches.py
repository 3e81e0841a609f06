"""A small run of every bench: its JSON has the one form, and every figure is there. No figure is judged by its size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bench.__main__ import BENCHES, main
from bench.runner import Run, in_turns

ROOT = Path(__file__).resolve().parents[1]
FORM = json.loads((ROOT / "docs/reference/benches.schema.json").read_text())
PAGE = (ROOT / "docs/reference/benches.md").read_text()

FIGURES = {
    "collector": """
        floor_cpu_us_per_socket collector_cpu_us_per_socket spool_cpu_us_per_socket json_cpu_us_per_socket
        ss_cpu_us_per_socket collector_per_floor_ratio spool_per_floor_ratio json_per_ss_ratio
        floor_read_bytes_per_socket collector_read_bytes_per_socket bytes_per_row spool_bytes_per_row polls
        churned_sockets close_records lost_poll_rows lost_close_records double_rows close_overruns duplicates_left_out
        peak_memory_mb idle_core_percent start_ms binary_mb
    """,
    "pipeline": """
        rows message_bytes_per_row wire_bytes_per_row files_rows_per_s files_cpu_s_per_million_rows kafka_rows_per_s
        consumer_rows_per_s ingest_cpu_s_per_million_rows
        kafka_cpu_s_per_million_rows kafka_per_files_rows_per_s_ratio kafka_per_files_cpu_s_per_million_rows_ratio
        bytes_per_row active_rows bytes_per_active_row column_bytes_per_row codec_bytes_per_row
    """,
    "rounds": """
        sample_rows scan_s rollup_s rollup_again_s rollup_per_scan_ratio peak_memory_gb peak_memory_before_rollup_gb
        pair_count_ms pair_read_ms pair_read_per_count_ratio pair_rows prefix_count_ms prefix_read_ms
        prefix_read_per_count_ratio prefix_rows
    """,
    "sizes": """
        rollup_s_per_million_rows table_bytes_per_row bytes_per_socket bytes_per_pair bytes_per_prefix
        bytes_per_pair_period bytes_per_prefix_period
    """,
    "controller": """
        initcwnd_s initcwnd_scan_s initcwnd_per_scan_ratio initcwnd_cpu_s initcwnd_scan_cpu_s
        initcwnd_cpu_per_scan_ratio congestion_s congestion_scan_s congestion_per_scan_ratio congestion_cpu_s
        congestion_scan_cpu_s congestion_cpu_per_scan_ratio prefix_rows pair_decision_rows prefix_decisions
        start_s start_scan_s start_per_scan_ratio start_cpu_s start_scan_cpu_s start_cpu_per_scan_ratio
        start_bare_write_cpu_per_scan_ratio start_plain_scan_cpu_s start_cpu_per_plain_scan_ratio
        start_cold_s start_cold_scan_s start_cold_per_scan_ratio start_cold_cpu_s start_cold_scan_cpu_s
        start_cold_cpu_per_scan_ratio cold_touch_s_per_gb hot_touch_s_per_gb
        start_observe_cpu_s start_law_cpu_s start_write_cpu_s start_read_rows start_round_rows start_kept_rows
        start_history_rows peak_memory_before_start_gb peak_memory_gb bytes_per_pair_decision bytes_per_path
        bytes_per_start_decision
    """,
    "push": "ip_batch_s apply_s apply_per_ip_batch_ratio",
    "push-fleet": "apply_s unchanged_s rollback_s withdraw_s",
    "pull": "half_taken_s all_taken_s offer_cpu_s server_cpu_s sign_and_write_cpu_s rollout_cpu_s",
    "gate": "was_wrong_arithmetic_share was_wrong_share budget_share wrong_share harm_seen_share",
    "calm": """
        changes_per_pair_and_day_median changes_per_pair_and_day_p95 changed_routes_per_round_median
        share_of_attainable_gain share_of_rounds_above_the_path
    """,
    "calm-prefixes": """
        selected_median new_per_round_median changes_per_round_mean changes_per_ever_selected_and_day_p95
        prefixes_with_four_changes_or_more share_of_attainable_gain share_of_oracle_with_its_holdout
    """,
    "calm-start": """
        model_median_error model_points time_saved_share share_of_attainable_gain share_of_gain_at_all
        changes_per_pair_and_day_median changes_per_pair_and_day_p95 trial_changes_per_pair_and_day_median
        sent_again_share sent_again_share_default
        harmful_rounds_share rounds_to_safety_median rounds_to_safety_p95 rounds_to_gain_median rounds_to_gain_p95
    """,
    "start": """
        cells failed_transfers ratio_limit_100k worst_ratio_limit_100k median_ratio_limit_100k worst_retransmit_rise
        worst_p95_per_default retransmit_rises p95_rises clear_retransmit_rises clear_p95_rises cells_in_halves
        retransmit_rises_in_halves p95_rises_in_halves pools pooled_retransmit_rises pooled_p95_rises
        pooled_clear_retransmit_rises pooled_clear_p95_rises pooled_cells_in_halves pooled_retransmit_rises_in_halves
        pooled_p95_rises_in_halves
    """,
    "start-changes": "connections_until_safe rounds_until_safe rounds_until_gain",
    "start-program": """
        alone_p50_ms alone_p95_ms alone_resent_per_connection alone_p50_per_limit together_p50_ms together_p95_ms
        together_resent_per_connection together_p50_per_limit started worst_alone_p50_per_limit
        worst_together_p50_per_limit
    """,
    "recovery": """
        connections mean_ms p50_ms p95_ms p99_ms handshake_p99_ms handshakes_resent_share syns_resent_per_connection
        synacks_resent_per_connection synacks_resent_twice_share segments_resent_share copied_per_asked_ratio
        mean_per_default_ratio p99_per_default_ratio
    """,
    "page": """
        page_bytes loads load_mean_ms load_p50_ms load_p95_ms connections_per_load segments_resent_share
        server_timeouts_per_load client_timeouts_per_load copied_per_asked_ratio
        mean_per_default_ratio mean_per_default_low_ratio mean_per_default_high_ratio
        p50_per_default_ratio p50_per_default_low_ratio p50_per_default_high_ratio
        p95_per_default_ratio p95_per_default_low_ratio p95_per_default_high_ratio
    """,
    "edge": """
        swap_s trie_mb_per_million_prefixes memory_mb_per_million_prefixes connections_per_s connect_ratio
        stream_gbit_per_s stream_ratio
    """,
    "calm-guard": """
        harmful_rounds harmful_rounds_in_a_row median_window_segments largest_harmless_window_segments
    """,
    "rules": """
        all_rules_gain all_rules_thin all_rules_again all_rules_unsafe noise_gain noise_thin noise_again noise_unsafe
        worth_gain worth_thin worth_again worth_unsafe failing_tests
    """,
}


def small(name: str, tmp_path: Path) -> dict[str, Any]:
    """In a process of its own, as benches run: some change their namespace, or take the memory of the process."""
    out = tmp_path / f"{name}.json"
    command = [sys.executable, "-m", "bench", name, "--small", "--json", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found == json.loads(out.read_text())
    return found


# Half a minute and longer; the quick evidence makes the transfers of `recovery`, too.
LONG = {
    *("calm-start", "controller", "pipeline", "push-fleet", "recovery", "rules", "start", "start-changes"),
    "start-program",
}
ALL = [
    pytest.param(name, marks=[pytest.mark.root] * bench.root + [pytest.mark.proof] * (name in LONG))
    for name, bench in BENCHES.items()
]


@pytest.mark.parametrize("name", ALL)
def test_a_small_run_has_every_figure_in_the_one_form(name: str, tmp_path: Path) -> None:
    found = small(name, tmp_path)
    jsonschema.validate(found, FORM)
    assert (found["bench"], found["small"]) == (name, True)
    assert found["sizes"].keys() == BENCHES[name].sizes.keys()
    figures = found["figures"]
    # A simulation this short may have nothing selected, of which there is no share.
    assert {one["name"] for one in figures} - {"new_share_of_selected"} == {*FIGURES[name].split()}
    assert all(one["min"] <= one["median"] <= one["max"] for one in figures)
    keys = [(one["name"], *one.get("labels", {}).items()) for one in figures]
    assert len(keys) == len({*keys})
    if name == "collector":
        every_socket_and_close_is_there({one["name"]: one["median"] for one in figures})


def every_socket_and_close_is_there(figures: dict[str, float]) -> None:
    """The bench reports nothing as lost, on a size at which nothing may be; and both sides read the same."""
    lost = ("lost_poll_rows", "lost_close_records", "double_rows", "close_overruns")
    assert [figures[name] for name in lost] == [0, 0, 0, 0]
    assert figures["churned_sockets"] > 0
    assert figures["polls"] >= 3
    assert figures["floor_read_bytes_per_socket"] == pytest.approx(figures["collector_read_bytes_per_socket"], rel=0.02)
    # No two sockets are alike: of rows that are, zstd leaves a twentieth.
    assert figures["spool_bytes_per_row"] > figures["bytes_per_row"] / 10


def test_works_take_turns_and_ratios_are_of_a_turn(tmp_path: Path) -> None:
    done: list[str] = []

    def work(name: str, values: list[float]) -> float:
        done.append(name)
        return values.pop(0)

    ours, peer = [9.0, 2.0, 12.0, 3.0], [9.0, 1.0, 3.0, 2.0]
    found = in_turns(
        3,
        {"ours": lambda: work("ours", ours), "peer": lambda: work("peer", peer)},
        before=lambda: done.append("|"),
        warm_up=1,
    )
    assert " ".join(done) == "| ours peer | ours peer | ours peer | ours peer"
    run = Run({}, 3, tmp_path)
    run.ratio("ours_per_peer", found["ours"], found["peer"], of="both")
    # Ratios of 2, 4 and 1.5; that of the medians would be 1.5.
    assert run.figures == [
        {"name": "ours_per_peer_ratio", "labels": {"of": "both"}, "min": 1.5, "median": 2.0, "max": 4.0, "turns": 3}
    ]


def test_the_list_and_the_page_have_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name in BENCHES:
        assert f"\n  {name} " in listed
        assert f"`{name}`" in PAGE
    assert FIGURES.keys() == BENCHES.keys()
