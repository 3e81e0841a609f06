"""The form of claims, results and pages, and the command's options."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from evidence import pages
from evidence.__main__ import CLAIMS, PARTS, listing, main
from evidence.claims import SOURCES, Claim, Measured, Sense, holds, results, verdict
from evidence.part import interval
from tools import words

KEYS = ["id", "source", "claim", "theirs", "ours", "ci_low", "ci_high", "n", "holds"]
LEAST = Claim("a", "paper", "figure 1", "Faster", 30, "least", "%", why="Ours is a lab.")


def test_ids_are_unique_and_every_claim_names_its_source_and_place() -> None:
    assert [name for name, count in Counter(claim.id for claim in CLAIMS).items() if count > 1] == []
    assert all(claim.source in SOURCES and claim.place and claim.text for claim in CLAIMS)
    assert all(claim.id in listing() for claim in CLAIMS)
    assert {claim.id for claim in CLAIMS} == {claim.id for part in PARTS for claim in part.claims}


@pytest.mark.parametrize(
    ("sense", "low", "high", "expected"),
    [
        ("least", 10, 29, "no"),
        ("least", 10, 30, "reached"),
        ("least", 30, 40, "yes"),
        ("most", 31, 40, "no"),
        ("most", 30, 40, "reached"),
        ("most", 10, 30, "yes"),
        ("same", 10, 29, "no"),
        ("same", 31, 40, "no"),
        ("same", 29, 31, "reached"),
        ("same", 30, 30, "yes"),
    ],
)
def test_a_claim_holds_where_the_interval_reaches_it(sense: Sense, low: float, high: float, expected: str) -> None:
    claim, found = Claim("a", "paper", "figure 1", "Faster", 30, sense), Measured(25, low, high, 9)
    assert verdict(claim, found) == expected
    assert holds(claim, found) is (expected != "no")


def test_without_a_number_the_bound_is_ours() -> None:
    claim = Claim("a", "paper", "figure 1", "Few", None, "most", within=5)
    assert holds(claim, Measured(4, 3, 6, 9))
    assert not holds(claim, Measured(7, 6, 8, 9))


def test_results_have_one_form_in_the_order_of_the_claims() -> None:
    claims = [LEAST, Claim("b", "paper", "figure 2", "Unmeasured", 1), Claim("c", "blog", "text", "Same", 2)]
    rows = results(claims, {"c": Measured(2, 2, 2, 1), "a": Measured(12.3456789, 10, 29, 40)})
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [row["id"] for row in rows] == ["a", "c"]
    assert rows[0]["ours"] == 12.346
    assert rows[0]["holds"] is False
    json.dumps(rows)


def test_an_interval_is_the_same_each_time_and_holds_its_statistic() -> None:
    values = [float(at % 17) for at in range(200)]
    first, again = (interval(lambda one: one.mean(), values) for _ in range(2))
    assert first == again
    assert first.low < first.ours < first.high
    assert first.n == 200


def test_pages_show_every_cell_also_where_it_is_lost(tmp_path: Path) -> None:
    found = {"a": Measured(12, 10, 29, 40)}
    written = pages.write(tmp_path, [LEAST], found, [], {"kernel": "6.18", "versions": {"numpy": "2"}})
    assert [path.name for path in written] == ["index.md", "paper.md"]
    first, paper = (path.read_text() for path in written)
    assert "0 of 1 claims hold on this machine, 0 of them by all of their interval." in first
    assert "| kernel | 6.18 |" in first
    assert "| numpy | 2 |" in first
    for page in (first, paper):
        assert "| `a` | Faster (figure 1) | ≥ 30 % | 12 % | 10 to 29 | 40 | **no** |" in page
    assert "- `a`: Ours is a lab." in paper


def test_what_pages_say_can_be_read_aloud(tmp_path: Path) -> None:
    found = {claim.id: Measured(1, 0, 2, 3) for claim in CLAIMS}
    written = pages.write(tmp_path, CLAIMS, found, [], {})
    assert [line for path in written for line in words.unreadable(path.name, path.read_text())] == []


def test_help_names_every_claim_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    said = capsys.readouterr().out
    assert all(claim.id in said for claim in CLAIMS)
    assert {"--quick", "--json", "--only", "--out", "--docs"} <= {*re.findall(r"--\w+", said)}
    with pytest.raises(SystemExit) as refused:
        main(["--only", "fig99"])
    assert refused.value.code == 2


def test_a_part_alone_writes_its_claims_and_leaves_the_documentation_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--only", "model", "--json", "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == json.loads((tmp_path / "results.json").read_text())
    assert [row["id"] for row in rows] == [claim.id for claim in PARTS[0].claims]
    assert (tmp_path / "pages/paper-figure-3.svg").read_text().startswith("<?xml")
    assert "kernel" in json.loads((tmp_path / "conditions.json").read_text())
    assert main(["--only", "fig3-first-50", "--json", "--out", str(tmp_path)]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["fig3-first-50"]
