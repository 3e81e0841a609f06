"""Files in dashboards/json are what the code makes, and they are what Grafana's own types allow."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.generate import FOLDER, documents, texts

ROOT = Path(__file__).parents[2]
MODULES, BOARDS = ROOT / "node_modules", ROOT / "docs/images/boards"
DOCUMENTS = documents()


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def test_the_files_are_made_from_the_code() -> None:
    made = texts()
    assert {path.name for path in FOLDER.glob("*.json")} == set(made), "run `make dashboards`"
    for name, text in made.items():
        assert (FOLDER / name).read_text() == text, f"{name}: run `make dashboards`"


TYPES = """\
import { FieldColorModeId, ThresholdsMode } from '@grafana/schema';
import type { AnnotationQuery, Dashboard, DataQuery } from '@grafana/schema';
interface Target extends DataQuery {
    editorType: 'sql'; queryType: 'table' | 'timeseries'; format: 0 | 1; rawSql: string
}
type Ours = Omit<Dashboard, 'annotations'> & { annotations: { list: AnnotationQuery<Target>[] } };
"""
# In TypeScript a string is not a member of an enum, whatever its value.
MEMBERS = {
    '"mode": "absolute"': '"mode": ThresholdsMode.Absolute',
    '"mode": "palette-classic"': '"mode": FieldColorModeId.PaletteClassic',
}


def complaints(folder: Path, made: dict[str, str]) -> str:
    """The errors of `tsc --strict` for these as dashboards of @grafana/schema, which Grafana publishes with each
    version."""
    parts = [TYPES]
    for file, text in made.items():
        for plain, member in MEMBERS.items():
            text = text.replace(plain, member)
        parts.append(f"export const {file.removesuffix('.json')}: Ours = {text};")
    (folder / "dashboards.ts").write_text("\n".join(parts))
    options = ["--strict", "--noEmit", "--skipLibCheck", "--module", "preserve", "--target", "es2022"]
    command = [str(MODULES / ".bin/tsc"), *options, "dashboards.ts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done
    return done.stdout + done.stderr


def test_grafanas_own_types_take_every_dashboard_and_refuse_a_wrong_one(tmp_path: Path) -> None:
    assert (MODULES / ".bin/tsc").exists(), "run `tools/setup --dev`"
    (tmp_path / "node_modules").symlink_to(MODULES)
    assert complaints(tmp_path, texts()) == ""
    one = texts()["fleet.json"]
    faults = (
        ('"graphTooltip": 1', '"graphTooltip": "yes"', "DashboardCursorSync"),
        ('"gridPos": {', '"gridPos": {"left": 3, ', "left"),
        ('"editorType": "sql"', '"editorType": "builder"', "builder"),
    )
    spoilt = {f"wrong{n}.json": one.replace(right, wrong, 1) for n, (right, wrong, _) in enumerate(faults)}
    output = complaints(tmp_path, spoilt)
    assert output.count("error TS") == len(faults), output
    assert all(word in output for _, _, word in faults), output


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_dashboard_can_be_read(name: str) -> None:
    """Descriptions, units, links, datasources that can be chosen, and no colours that a theme would hide."""
    document = DOCUMENTS[name]
    assert document["description"].endswith(".")
    assert any(link["type"] == "dashboards" and link["keepTime"] for link in document["links"])
    assert {mark["name"] for mark in document["annotations"]["list"]} == {"Pushes", "Stops"}
    for variable in document["templating"]["list"]:
        assert variable["type"] == "datasource" or variable["description"].endswith("."), variable["name"]
    titles = [panel["title"] for panel in panels(document)]
    assert len(set(titles)) == len(titles)
    for panel in panels(document):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] in ("${clickhouse}", "${prometheus}")
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    assert not re.findall(r"#[0-9a-fA-F]{6}|rgb\(", (FOLDER / name).read_text())


def test_the_docs_show_a_picture_of_every_dashboard() -> None:
    page = (ROOT / "docs/how-to/read-the-dashboards.md").read_text()
    for name, document in DOCUMENTS.items():
        assert f"\n## {document['title']}\n" in page, f"{name}: docs/how-to/read-the-dashboards.md does not have it"
        assert f"](../images/boards/{Path(name).stem}.png)\n" in page, name
    pictures = {path.name: path.stat().st_size for path in BOARDS.iterdir()}
    assert set(pictures) == {f"{Path(name).stem}.png" for name in DOCUMENTS}, "run `make boards`"
    assert sum(pictures.values()) < 1_500_000


def test_links_lead_to_dashboards_and_variables_that_exist() -> None:
    known = {
        document["uid"]: {variable["name"] for variable in document["templating"]["list"]}
        for document in DOCUMENTS.values()
    }
    links = [
        link["url"]
        for document in DOCUMENTS.values()
        for panel in panels(document)
        for override in panel.get("fieldConfig", {}).get("overrides", [])
        for given in override["properties"]
        if given["id"] == "links"
        for link in given["value"]
    ]
    assert len(links) >= 6
    for url in links:
        found = re.fullmatch(r"/d/([a-z-]+)\?var-(\w+)=\$\{__value\.raw\}&\$\{__url_time_range\}", url)
        assert found is not None, url
        assert found[2] in known[found[1]], url


def test_panels_do_not_overlap() -> None:
    for name, document in DOCUMENTS.items():
        taken: dict[tuple[int, int], str] = {}
        for panel in document["panels"]:
            place = panel["gridPos"]
            assert place.get("x", 0) + place["w"] <= 24, f"{name}: {panel['title']}"
            for x in range(place.get("x", 0), place.get("x", 0) + place["w"]):
                for y in range(place.get("y", 0), place.get("y", 0) + place["h"]):
                    assert (x, y) not in taken, f"{name}: {panel['title']} lies on {taken[x, y]}"
                    taken[x, y] = panel["title"]
