"""Metrics of a command for node_exporter's textfile collector (Prometheus exposition format, version 0.0.4)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from springtide.errors import SpringtideError

Labels = tuple[tuple[str, str], ...]
# Help, and values by labels.
Gauges = dict[str, tuple[str, Mapping[Labels, float]]]


def write_metrics(path: Path, metrics: Mapping[str, tuple[str, Mapping[Labels, float]]]) -> None:
    """Replace the file at once; `metrics` is help and values by labels of each gauge. Raises SpringtideError."""
    lines = []
    for name, (text, values) in metrics.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for labels, value in values.items():
            inside = ",".join(f'{key}="{label}"' for key, label in labels)
            lines.append(f"{name}{{{inside}}} {value:.15g}" if inside else f"{name} {value:.15g}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text("\n".join(lines) + "\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SpringtideError(f"{path}: cannot be written: {error.strerror}; choose another --metrics") from error
