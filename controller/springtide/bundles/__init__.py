"""Decisions become bundles; only valid bundles are published."""
