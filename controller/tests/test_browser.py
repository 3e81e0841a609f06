"""The browser that looks at the report sees what is wrong with a page."""

from __future__ import annotations

from pathlib import Path

from testkit.browser import look, look_at

BAD = """<!doctype html><title>x</title><link rel="icon" href="data:,"><body>
<svg style="display: none"><rect width="9" height="9"/></svg>
<script src="http://127.0.0.1:9/nothing.js"></script>
<script>console.error("no"); undefined_function()</script>
"""

NARROW = """<!doctype html><meta name="viewport" content="width=device-width"><title>x</title>
<link rel="icon" href="data:,"><body style="margin: 0">"""
PLOT = "<svg viewBox='0 0 400 60' width='100%' font-size='12'>{}</svg>"
# Each with what is wrong with it: nothing with the last ones.
FAULTS = {
    "<table><tr>" + "<td>a_long_unbroken_word</td>" * 9 + "</table>": "the page is ",
    "<p style='position: fixed; left: -50px'>left of all</p>": 'p "left of all" is outside',
    "<p style='width: 50px; overflow: hidden; white-space: nowrap'>does not fit</p>": 'p "does not fit" is cut',
    "<div style='height: 30px; overflow: hidden'>one<br>two<br>three</div>": 'div "onetwothree" is cut',
    PLOT.format("<text x='380' y='30'>an axis</text>"): 'text "an axis" leaves its plot',
    PLOT.format("<text x='10' y='30'>one</text><text x='14' y='33'>two</text>"): 'text "one" lies on text "two"',
    PLOT.format("<text x='10' y='30' style='font-size: 6px'>tiny</text>"): 'text "tiny" is 6.0 px high',
    PLOT.format("<text x='10' y='20'>one</text><text x='10' y='36'>two</text>"): "",
    "<div style='overflow-x: auto'><table><tr>" + "<td>a_long_unbroken_word</td>" * 9 + "</table></div>": "",
}


def test_it_sees_what_a_reader_would_miss(tmp_path: Path) -> None:
    pages = []
    for number, body in enumerate(FAULTS):
        page = tmp_path / f"{number}.html"
        page.write_text(NARROW + body)
        pages.append((page, 400))
    for (body, expected), seen in zip(FAULTS.items(), look_at(pages, tmp_path / "profile"), strict=True):
        assert bool(seen.faults) == bool(expected), f"{body}: {seen.faults}"
        assert not expected or any(expected in fault for fault in seen.faults), f"{body}: {seen.faults}"


def test_it_sees_requests_errors_hidden_plots_and_blank_pages(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD)
    seen = look(page, tmp_path / "profile")
    assert "http://127.0.0.1:9/nothing.js" in seen.requests
    assert any("no" in text for text in seen.complaints)
    assert len(seen.complaints) >= 2
    assert [(box["name"], box["width"]) for box in seen.boxes] == [("svg", 0)]
    assert seen.colours < 10
