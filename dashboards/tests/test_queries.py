"""Every query of every panel, variable and annotation runs on the engine, over a fleet that was operated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from springtide.fleet import load_fleet
from springtide.laws.holdout import held_out_edges
from springtide.policy import load_policy
from springtide.store import Store

from dashboards.drawing import drawn, of_store, save, shown
from dashboards.generate import documents
from dashboards.plugin import View, expanded, values_of
from testkit.home import ROUND, Home
from testkit.operated import POLICY

VIEW = View(ROUND - 86_400 - 1200, ROUND + 120)
DOCUMENTS = documents()
# The fleet's own policy, where the dashboards begin with the default.
TYPED = {"edge_share": ["0.5"], "min_edges": ["2"]}
# The engine's own clock stamps these, not the fleet's.
BY_THE_ENGINES_CLOCK = {("pipeline.json", "Not understood")}
NUMBER = ("UInt", "Int", "Float", "Bool", "Decimal")


def plain(kind: str) -> str:
    for wrapper in ("Nullable(", "LowCardinality("):
        if kind.startswith(wrapper):
            return plain(kind[len(wrapper) : -1])
    return kind


def columns_of(store: Store, sql: str) -> dict[str, str]:
    """Name and type of each column that a query gives."""
    return {row["name"]: row["type"] for row in store.query(f"describe table ({sql})")}


def clickhouse_targets(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    panels = [(panel["title"], panel) for panel in document["panels"] if panel["type"] != "row"]
    return [
        (title, target)
        for title, panel in panels
        for target in panel["targets"]
        if target["datasource"]["type"] == "grafana-clickhouse-datasource"
    ]


def check_columns(where: str, panel: str, series: bool, types: dict[str, str]) -> None:
    kinds = [plain(kind) for kind in types.values()]
    if series:
        assert next(iter(types)) == "time", f"{where}: the first column is {next(iter(types))}"
        assert kinds[0].startswith("DateTime"), f"{where}: time is {kinds[0]}"
        assert all(
            kind.startswith(NUMBER) for name, kind in zip(types, kinds, strict=True) if name not in ("time", "series")
        )
        if "series" in types:
            assert (len(types), types["series"] in ("String", "LowCardinality(String)")) == (3, True), (
                f"{where}: {types}"
            )
    elif panel == "stat":
        assert len(types) == 1, f"{where}: {types}"
        assert kinds[0].startswith(NUMBER), f"{where}: {types}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_query_gives_rows_of_the_right_form(store: Store, name: str) -> None:
    document = DOCUMENTS[name]
    values = values_of(store, document, VIEW, TYPED)
    lists = {variable["name"] for variable in document["templating"]["list"] if variable["type"] == "query"}
    assert [variable for variable in lists if not "".join(values[variable])] == [], f"{name}: lists of nothing"
    panels = {panel["title"]: panel for panel in document["panels"]}
    for title, target in clickhouse_targets(document):
        where = f"{name}: {title}"
        sql = expanded(target["rawSql"], values, VIEW)
        types = columns_of(store, sql)
        check_columns(where, panels[title]["type"], target["format"] == 0, types)
        for override in panels[title].get("fieldConfig", {}).get("overrides", []):
            assert override["matcher"]["options"] in types, f"{where}: no column {override['matcher']['options']}"
        if (name, title) in BY_THE_ENGINES_CLOCK:
            sql = expanded(target["rawSql"], values, View(VIEW.since, int(time.time()) + 60))
        rows = store.query(sql)
        assert rows, f"{where}: no rows"
        assert any(value is not None for row in rows for column, value in row.items() if column != "time"), where
        if target["format"] == 0:
            moments = [row["time"] for row in rows]
            assert moments == sorted(moments), f"{where}: not in the order of time"
    for annotation in document["annotations"]["list"]:
        sql = expanded(annotation["target"]["rawSql"], values, VIEW)
        types = columns_of(store, sql)
        assert list(types) == ["time", "title", "text", "tags"], annotation["name"]
        assert plain(types["time"]) == "DateTime('UTC')"
        assert store.query(sql), f"{name}: no marks for {annotation['name']}"


def test_the_edges_held_out_are_those_that_the_law_holds_out(store: Store, operated: Home) -> None:
    values = values_of(store, DOCUMENTS["benefit.json"], VIEW, TYPED)
    assert operated.policy.read_text() == POLICY
    law = load_policy(operated.policy).holdout
    assert (values["edge_share"], values["min_edges"]) == ([str(law.edge_share)], [str(law.min_edges)])
    assert set(values["held_out"]) == set(held_out_edges(load_fleet(operated.fleet), law))


@pytest.mark.parametrize(
    ("name", "title", "chosen", "column", "expected"),
    [
        ("pairs.json", "Newest decisions", {"src": ["ams"], "dst": ["nyc"]}, "src_pop", {"ams"}),
        ("prefixes.json", "Newest decisions", {"prefix": ["203.0.113"]}, "prefix", {"203.0.113.0/24"}),
        ("prefixes.json", "What prefixes get", {"pop": ["fra"]}, "pop", {"fra"}),
        ("connections.json", "Newest samples", {"prefix": ["198.51.100.0/24"]}, "peer", {"198.51.100.7"}),
        ("connections.json", "Newest samples", {"prefix": ["2001:db8:1::/56"]}, "peer", {"2001:db8:1::7"}),
        ("connections.json", "Newest samples", {"asn": ["64500"]}, "peer", {"203.0.113.7"}),
        ("connections.json", "What connections started with", {"prefix": ["192.0.2"]}, "started_window", {33}),
        ("connections.json", "Autonomous systems", {"asn": ["64501"]}, "name", {"Near By"}),
        ("connections.json", "Prefixes", {"peer": ["nyc"], "host": ["fra-1"]}, "prefix", {"10.77.3.0/24"}),
        ("connections.json", "Prefixes", {"prefix": ["it's"]}, "prefix", set()),
        ("pairs.json", "Probes by percentile", {"src": ["nyc"]}, "rtt_group", {"2: 50-100 ms"}),
        ("pairs.json", "Probes by percentile", {"src": ["fra"], "dst": ["ams"]}, "rtt_group", {"1: up to 50 ms"}),
        ("starts.json", "Paths now", {"destination": ["203.0."]}, "state", {"held"}),
        ("starts.json", "Paths now", {"destination": ["n"]}, "state", {"on trial"}),
        ("fleet.json", "What got worse", {}, "outcome", {"time of 100 kB, p95"}),
        ("benefit.json", "Paths", {"pop": ["fra"]}, "group", set()),
        ("benefit.json", "Paths", {"pop": ["ams"]}, "held_out_ms", {100}),
        ("rollouts.json", "Audit", {"event": ["drift"]}, "event", {"drift"}),
        ("pipeline.json", "Hosts", {"host": ["ams-2"]}, "host", {"ams-2"}),
    ],
)
def test_variables_narrow_what_is_shown(
    store: Store, name: str, title: str, chosen: dict[str, list[str]], column: str, expected: set[str]
) -> None:
    values = values_of(store, DOCUMENTS[name], VIEW, TYPED) | chosen
    [sql] = [target["rawSql"] for found, target in clickhouse_targets(DOCUMENTS[name]) if found == title]
    assert {row[column] for row in store.query(expanded(sql, values, VIEW))} == expected


def test_numbers_are_those_of_the_fleet(store: Store) -> None:
    def only(name: str, title: str) -> Any:
        document = DOCUMENTS[name]
        [sql] = [target["rawSql"] for found, target in clickhouse_targets(document) if found == title]
        [row] = store.query(expanded(sql, values_of(store, document, VIEW, TYPED), VIEW))
        [value] = row.values()
        return value

    assert [only("fleet.json", title) for title in ("Better", "Worse")] == [1, 1]
    # Its bundles have expired: what was decided is not what connections begin with.
    assert only("fleet.json", "Connections that begin with it") == 0
    assert only("fleet.json", "Newest round") == 120
    # 92.4 ms beside a round trip of 80 and 8 for 100 kB at 12.5 MB/s.
    assert only("starts.json", "Times the limit") == pytest.approx(1.05)
    assert [only("starts.json", title) for title in ("On trial", "Held", "Brakes")] == [1, 1, 2]
    assert only("starts.json", "First flights that lost something") == 2
    assert only("fleet.json", "Hosts that sent samples") == 3
    assert 80 < only("fleet.json", "Complete") < 100
    assert only("fleet.json", "Drift found") == 2
    assert only("fleet.json", "Gates that rolled back") == 0


def test_what_would_be_gained_is_what_slow_start_would_save(store: Store) -> None:
    def round_trips(window: float) -> int:
        sent, trips = 0.0, 0
        while sent < 70:
            sent, window, trips = sent + window, 2 * window, trips + 1
        return trips

    document = DOCUMENTS["fleet.json"]
    [sql] = [target["rawSql"] for title, target in clickhouse_targets(document) if title == "Would gain"]
    shown = {(row["time"], row["series"]): row["saved_ms"] for row in store.query(expanded(sql, {}, VIEW))}
    unit = ("round", "src_pop", "dst_pop", "ip_version")
    decided = store.query("select *, destination as dst_pop from path_decisions final where initcwnd > 0")
    windows = {tuple(row[name] for name in unit): row["initcwnd"] for row in decided}
    assert windows
    sums: dict[tuple[str, str], list[float]] = {}
    for row in store.query("select * from pairs where rtt_ms is not null and connections_seen > 0"):
        window = windows.get(tuple(row[name] for name in unit), 10)
        saved = row["rtt_ms"] * (round_trips(10) - round_trips(max(window, 10)))
        found = sums.setdefault((row["round"], row["src_pop"]), [0.0, 0.0])
        found[0] += saved * row["connections_seen"]
        found[1] += row["connections_seen"]
    assert shown == pytest.approx({key: total / count for key, (total, count) in sums.items() if key in shown})
    assert any(shown.values()), "the fleet gains nothing: nothing is tested"


def test_a_board_is_drawn_from_its_queries_with_its_own_units(store: Store) -> None:
    figure = of_store(store, DOCUMENTS["starts.json"], VIEW, TYPED)
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    titles = {panel["title"] for panel in DOCUMENTS["starts.json"]["panels"] if panel["type"] != "row"}
    assert set(panels) == titles
    assert [one.get_text() for one in panels["Times the limit"].texts] == ["1.05"]
    assert [one.get_text() for one in panels["First flights that lost something"].texts] == ["2 %"]
    rates = panels["Rates in use"]
    assert list(np.asarray(rates.lines[0].get_ydata())) == [12_500_000] * 2
    assert rates.yaxis.get_major_formatter()(12_500_000) == "12.5 MB/s"
    [limit] = [line for line in panels["Times the default's time"].lines if line.get_linestyle() == "--"]
    assert list(np.asarray(limit.get_ydata())) == [1, 1]
    [table] = panels["Paths now"].tables
    assert [table[1, column].get_text().get_text() for column in (0, 1, 3, 6)] == ["ams", "fra", "in use", "12.5 MB/s"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.1234, "percentunit", "12.3 %"),
        (1234, "ms", "1.23 s"),
        (0.0924, "s", "92.4 ms"),
        (415, "s", "6.92 min"),
        (7200, "s", "2 h"),
        (0, "s", "0 s"),
        (1234, "short", "1.23 k"),
        (999, "short", "999"),
        (0.0000474, "percent", "0.000047 %"),
        (1e-8, "percent", "0 %"),
        (999.7, "Mbits", "1000 Mbit/s"),
        (999.9, "ms", "1000 ms"),
        (2_500_000_000, "bytes", "2.5 GB"),
        (None, "ms", ""),
        ("ams", "ms", "ams"),
        (True, None, "True"),
        ("2026-01-02 03:05:00", None, "01-02 03:05"),
        ("2026-01-02 03:05:00.000123", None, "01-02 03:05"),
    ],
)
def test_units_are_those_of_grafana(value: object, unit: str | None, text: str) -> None:
    assert shown(value, unit) == text


def test_a_line_breaks_where_nothing_is_known_and_what_follows_a_short_table_moves_up() -> None:
    panels = {panel["title"]: panel for panel in DOCUMENTS["fleet.json"]["panels"]}
    chosen = [panels[title] for title in ("What got worse", "Completeness by PoP")]
    rows = [{"time": f"2026-01-02 0{at}:00", "series": "ams", "percent": 90} for at in ("0:00", "0:05", "2:00")]

    def figure(worse: list[dict[str, Any]]) -> Figure:
        document = {"title": "", "panels": chosen}
        return drawn(document, VIEW, lambda panel: worse if panel["title"] == "What got worse" else rows)

    short, long = figure([]), figure([{"effect": 0.1}] * 9)
    assert short.get_figheight() < long.get_figheight()
    [line] = [one for axes in short.axes for one in axes.lines if one.get_label() == "ams"]
    assert list(np.isnan(np.asarray(line.get_ydata(), float))) == [False, False, True, False]


@pytest.mark.proof
def test_every_board_is_drawn(store: Store, tmp_path: Path) -> None:
    for name, document in DOCUMENTS.items():
        figure = of_store(store, document, VIEW, TYPED)
        empty = [axes.get_title(loc="left") for axes in figure.axes if "no rows" in [t.get_text() for t in axes.texts]]
        assert [title for title in empty if (name, title) not in BY_THE_ENGINES_CLOCK] == [], name
        save(figure, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
