"""Springtide."""
