"""Hook of mkdocs: the site has the pages that are made from the code, and every page is in the navigation. Each term of
the glossary shows its meaning wherever it stands.

A pattern in `nav` is replaced by the pages that it matches and that are not named themselves. So a new page of a folder
is in the navigation without a word about it, and a folder that is not there yet is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools import reference

GLOSSARY = "reference/glossary.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the pages that it found."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs with each page: the glossary's terms behind it, which the extension `abbr` looks for in it."""
    if page.file.src_uri == GLOSSARY:
        return markdown
    return "\n".join([markdown, "", *(f"*[{term}]: {meaning}" for term, meaning in terms(Path(config.docs_dir)))])


def terms(folder: Path) -> Iterator[tuple[str, str]]:
    """The glossary's terms, each with its meaning as plain text."""
    rows = re.findall(r"^\| (?!word |---)(.+?) \| (.+?) \|$", (folder / GLOSSARY).read_text(), re.M)
    for words, meaning in rows:
        for term in words.split(", "):
            yield term, re.sub(r"\[(.*?)\]\(.*?\)|`", r"\1", meaning)


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
