"""Metrics of a command for node_exporter's textfile collector (Prometheus exposition format, version 0.0.4)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.errors import SpringtideError

Labels = tuple[tuple[str, str], ...]
# Values by labels.
Gauges = dict[str, Mapping[Labels, float]]


@dataclass(frozen=True)
class Metric:
    """A gauge: its help text, and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


# Every metric of the controller but for those of single laws (laws.registry.METRICS has them too).
METRICS: dict[str, Metric] = {
    "springtide_decided_round_seconds": Metric("Newest decided round, seconds since the epoch.", ("law",)),
    "springtide_input_incomplete": Metric(
        "1 where too little of the round arrived: the PoP's last decisions stay in force.", ("law", "pop")
    ),
    "springtide_input_hosts": Metric("Hosts that sent samples in the round.", ("law", "pop")),
    "springtide_input_hosts_expected": Metric("Hosts that sent samples in the last rounds.", ("law", "pop")),
    "springtide_input_rows": Metric("Samples that arrived.", ("law", "pop")),
    "springtide_input_rows_expected": Metric("Samples that should have arrived.", ("law", "pop")),
    "springtide_treatments": Metric(
        "Pairs of an edge and a PoP that should have a window, prefixes that should have BBR: whether sockets show the "
        "same, that it differs, or nothing (unknown).",
        ("law", "seen"),
    ),
    "springtide_benefit_worse": Metric(
        "1 where connections are worse off with what the law decides, beyond chance, by the newest measured day.",
        ("law",),
    ),
    "springtide_status_seconds": Metric("When `springtide status` wrote its metrics, seconds since the epoch."),
    "springtide_step_closes": Metric("1 where the step lets the loop close.", ("step",)),
    "springtide_step_seconds": Metric("When the step last happened, seconds since the epoch.", ("step",)),
    "springtide_event_seconds": Metric(
        "When the newest event of its kind was, seconds since the epoch, with its verdict.", ("event", "verdict")
    ),
    "springtide_bundles_expire_seconds": Metric("When the fleet's current bundles expire, seconds since the epoch."),
    "springtide_paused": Metric("1 while publishing is paused."),
    "springtide_job_failed_seconds": Metric("When the step of a scheduled job last failed.", ("job", "step")),
    "springtide_job_succeeded_seconds": Metric("When the step of a scheduled job last succeeded.", ("job", "step")),
}


def placed(folder: str | None, name: str) -> Path | None:
    """The file of this name in a folder for metrics, which is made; None where the folder is not set, or empty."""
    if not folder:
        return None
    with contextlib.suppress(OSError):  # writing says so
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / name


def write_metrics(path: Path, metrics: Gauges, described: Mapping[str, Metric] = METRICS) -> None:
    """Replace the file at once; `metrics` is values by labels of each metric. Raises SpringtideError."""
    lines = []
    for name, values in metrics.items():
        lines += [f"# HELP {name} {described[name].help}", f"# TYPE {name} gauge"]
        for labels, value in values.items():
            inside = ",".join(f'{key}="{label}"' for key, label in labels)
            lines.append(f"{name}{{{inside}}} {value:.15g}" if inside else f"{name} {value:.15g}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text("\n".join(lines) + "\n")
        # node_exporter is another user, and nothing in it is secret.
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise SpringtideError(
            f"{path}: cannot be written: {error.strerror}; choose another place for metrics"
        ) from error
