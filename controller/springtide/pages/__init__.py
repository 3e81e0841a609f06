"""HTML pages from Jinja2 templates. A template stands beside the module that fills it, under the module's name, extends
base.html and takes macros from macros.html, both here. All that is put into one is text, and is escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def render(module: str, **values: Any) -> str:
    """The page of a module, which is named by its `__file__`. Nothing that is missing is taken for empty."""
    # Imported here: it takes a tenth of a second, and neither `--help` nor TAB should.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = Path(module).with_suffix(".html")
    loader = FileSystemLoader([template.parent, Path(__file__).parent])
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template(template.name).render(values)
