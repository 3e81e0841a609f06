"""mkdocs' hook: a pattern in `nav` is replaced by the pages that it matches and that are not named themselves.

So a new page of a folder is in the navigation without a word about it, and a folder that is not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called by mkdocs before anything is read."""
    folder = Path(config["docs_dir"])
    config["nav"] = expanded(config["nav"], folder, set(_named(config["nav"])))
    return config


def expanded(nav: list[Any], folder: Path, named: set[str]) -> list[Any]:
    """`nav` with each pattern's pages in its place, sorted; sections that end up empty are left out."""
    found: list[Any] = []
    for item in nav:
        if isinstance(item, str) and "*" in item:
            pages = sorted(path.relative_to(folder).as_posix() for path in folder.glob(item))
            found += [page for page in pages if page not in named]
        elif isinstance(item, dict):
            [(title, inside)] = item.items()
            below = expanded(inside, folder, named) if isinstance(inside, list) else inside
            found += [{title: below}] if below else []
        else:
            found.append(item)
    return found


def _named(nav: list[Any]) -> Iterator[str]:
    for item in nav:
        if isinstance(item, dict):
            for inside in item.values():
                yield from _named(inside) if isinstance(inside, list) else (inside,)
        else:
            yield item
