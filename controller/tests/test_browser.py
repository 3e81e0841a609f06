"""The browser that looks at the report sees what is wrong with a page."""

from __future__ import annotations

from pathlib import Path

from testkit.browser import look

BAD = """<!doctype html><title>x</title><link rel="icon" href="data:,"><body>
<svg style="display: none"><rect width="9" height="9"/></svg>
<script src="http://127.0.0.1:9/nothing.js"></script>
<script>console.error("no"); undefined_function()</script>
"""


def test_it_sees_requests_errors_hidden_plots_and_blank_pages(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD)
    seen = look(page, tmp_path / "profile")
    assert "http://127.0.0.1:9/nothing.js" in seen.requests
    assert any("no" in text for text in seen.complaints)
    assert len(seen.complaints) >= 2
    assert [(box["name"], box["width"]) for box in seen.boxes] == [("svg", 0)]
    assert seen.colours < 10
