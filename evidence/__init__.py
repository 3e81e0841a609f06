"""What the sources claim, measured again on this machine: `python -m evidence`, or `make evidence` (docs/evidence)."""
