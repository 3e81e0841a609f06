"""Loads the embedded engine's library."""

from __future__ import annotations

import importlib
import os
from typing import Any


def engine(module: str) -> Any:
    """chdb, or a module of it. All of Springtide's instants are UTC; the library reads TZ as it is loaded, and ends
    with a name that it does not know by an error that says nothing of it."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    try:
        return importlib.import_module(module)
    finally:
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone
