"""Measures the sources' claims again on this machine: `python -m evidence`, or `make evidence` (docs/evidence)."""
