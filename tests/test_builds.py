"""Proofs that take a compilation of their own: fuzzing, and the collector without its network sinks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.proof


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_no_bytes_crash_what_edges_read_or_collectors_decode() -> None:
    """A third of a minute for each parser."""
    assert run("tools/fuzz", "20").count("no crash") == 6


def test_the_collector_compiles_without_its_network_sinks() -> None:
    options = ("--release", "-p", "springtide-collector", "--no-default-features", "--locked", "--quiet")
    run("cargo", "clippy", *options, "--", "-D", "warnings")
