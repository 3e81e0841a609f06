"""Decisions become bundles, and only valid bundles leave."""
