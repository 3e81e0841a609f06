"""Errors of the lab, in the words that its user sees."""

from __future__ import annotations


class LabError(Exception):
    """A failure at run time: what failed, on what, what to do. Exit code 1."""

    exit_code = 1


class InputError(LabError):
    """Bad input or usage; nothing was made. One line for each fault. Exit code 2."""

    exit_code = 2
