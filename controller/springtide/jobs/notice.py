"""Reports of a scheduled job's outcome: a line in the audit and a file for node_exporter."""

from __future__ import annotations

import os
from collections.abc import Mapping

from springtide import instants
from springtide.jobs.site import Site
from springtide.metrics import Gauges, Labels, placed, write_metrics
from springtide.publication import journal


def failed(site: Site, job: str, step: str, why: str, fix: str) -> str:
    """Record a failure; returns one line with what failed and what to do. Raises SpringtideError."""
    line = f"{job}.{step}: {why.strip().splitlines()[0] if why.strip() else 'no reason given'}; {fix}"
    journal.append(site.publish_dir, journal.Event("job", verdict="failed", reason=line))
    measure(job, step, "failed")
    return line


def measure(job: str, step: str, outcome: str, environment: Mapping[str, str] = os.environ) -> None:
    """When a step last succeeded or failed, in a file of its own in SPRINGTIDE_METRICS_DIR; nothing without that."""
    path = placed(environment.get("SPRINGTIDE_METRICS_DIR"), f"{job}_{step}_{outcome}.prom")
    if path is None:
        return
    values: dict[Labels, float] = {(("job", job), ("step", step)): instants.now()}
    gauges: Gauges = {f"springtide_job_{outcome}_seconds": values}
    write_metrics(path, gauges)
