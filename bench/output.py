"""What benchmarks share: their arguments, and their result as JSON in a file and on the screen."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parser(description: str | None, out: str, **sizes: int) -> argparse.ArgumentParser:
    """Options for each size with its default, and --out."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in sizes.items():
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--out", type=Path, default=Path(out))
    return made


def write(out: Path, result: Mapping[str, Any]) -> str:
    """Gives back the text that was written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=2)
    out.write_text(text + "\n")
    return text
