"""`springtide sql`: every question of sql/analysis returns rows, and the docs show them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.learn.questions import questions

from testkit.history import ROUNDS
from testkit.history import lived as of_history
from testkit.home import ROUND, Home

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference/analysis.md"
SHOWN_ROWS = 8
OWN = """\
## What a query of your own may do

`springtide sql tables` lists the views and tables, and `springtide sql "describe NAME"` the columns of one, with
what they mean. A column without a text is a unit and a name, or continues the one above it.
`springtide sql "select ..."` takes one `select`, `explain`, `show tables` or `describe NAME`, and writes nothing.
Anything else is refused with exit code 2 before it runs. The engine parses the text, and these are refused by its
syntax tree: another statement, a second one, `INTO OUTFILE`, `FORMAT` (`--csv` and `--json` choose the output),
`SETTINGS`, and the functions `file` and `eval`.

In the embedded store the engine then runs it as a user with `SELECT` and `dictGet` on Springtide's tables and no
other right: it can read these rows and the engine's own tables in the database `system` (tables,
settings, threads of this process). It cannot read files, other hosts, other programs or Python's variables.

On a ClickHouse server each query carries `readonly = 1` and the limits, and reads whatever the URL's user may read:
create a user for people with `GRANT SELECT, dictGet ON springtide.*` and nothing else, as `grafana` has it in
`deploy/compose/clickhouse/users.xml`. A profile may set `readonly` 2, not 1, which would refuse the limits.

| option | default | bounds |
| --- | --- | --- |
| `--max-seconds` | 300; 40 in an embedded store | how long it runs. The engine checks the time between blocks of \
rows; 10 s later the command ends by itself. |
| `--max-memory-mb` | 4000 | memory in the engine |
| `--max-rows` | 1000000 | rows of the result |

A query over a limit ends with exit code 1 and one line with its name.
"""


@pytest.fixture(scope="module")
def lived(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """An installation with two days of history."""
    home = of_history(history, tmp_path_factory.mktemp("lived"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 120)
        for moment in ROUNDS:
            home.run("decide", "initcwnd", "--round", instants.show(moment))
        yield home
    home.release()


def page(answers: dict[str, list[dict[str, object]]]) -> str:
    """docs/reference/analysis.md, generated from the code and what a small fleet's data answer."""
    parts = [
        "# Questions to the data\n\n"
        "`springtide sql` lists these questions, `springtide sql NAME --set PARAMETER=VALUE` runs one, and\n"
        "`springtide sql NAME --show` prints its SQL, as a start for your own. The results below are of two days\n"
        "of a small fleet made for the tests; `python -m pytest controller/tests/test_questions.py` makes this page.\n"
        f"\n{OWN}"
    ]
    for question in questions():
        rows = answers[question.name]
        columns = list(rows[0])
        lines = [[("-" if row[name] is None else str(row[name])) for name in columns] for row in rows[:SHOWN_ROWS]]
        table = [columns, ["---"] * len(columns), *lines]
        parameters = [
            f"- `{p.name}` ({p.type}, default `{p.default or 'empty'}`): {p.meaning}" for p in question.parameters
        ]
        more = f"\n… and {len(rows) - SHOWN_ROWS} rows more.\n" if len(rows) > SHOWN_ROWS else ""
        parts.append(
            f"\n## {question.name}\n\n{question.question} {question.note}".rstrip()
            + "\n\n"
            + "\n".join(parameters)
            + "\n\n"
            + "\n".join(f"| {' | '.join(line)} |" for line in table)
            + f"\n{more}"
        )
    return "".join(parts)


def test_every_question_is_answered_and_the_docs_show_how(lived: Home, tmp_path: Path) -> None:
    assert len(questions()) >= 15
    answers = {question.name: lived.json("sql", question.name) for question in questions()}
    for question in questions():
        assert answers[question.name], f"{question.name}: no rows"
        assert question.question.endswith("?")
        assert question.parameters
    made = page(answers)
    fresh = tmp_path / "analysis.md"
    fresh.write_text(made)
    assert PAGE.exists(), f"copy {fresh} to {PAGE}"
    assert PAGE.read_text() == made, f"copy {fresh} to {PAGE}"


def test_answers_match_the_generated_history(lived: Home) -> None:
    worst = lived.json("sql", "worst-prefixes", "--set", "pop=ams")
    assert (worst[0]["prefix"], {row["pop"] for row in worst}) == ("203.0.113.0/24", {"ams"})
    [lost] = lived.json("sql", "lost-goodput", "--set", "top=1")
    assert lost["prefix"] == "203.0.113.0/24"
    assert -45 < lost["change_percent"] < -25
    limited = lived.json("sql", "receiver-limited-pairs")
    assert {row["dst_pop"] for row in limited} == {"nyc"}
    pushed = lived.json("sql", "windows-before-after")
    assert all(15 < row["cwnd_after"] - row["cwnd_before"] < 35 for row in pushed)
    [gap] = lived.json("sql", "incomplete-hosts")
    assert (gap["host"], gap["polls_seen"], gap["polls_expected"]) == ("ams-2", 4, 5)
    sides = lived.json("sql", "algorithms-side-by-side", "--set", "top=2")
    assert all(row["bbr_to_cubic"] > 1.2 for row in sides)


def test_answers_are_of_no_round_in_the_future(lived: Home) -> None:
    """Rounds of a clock that was ahead, which are there until that time has come."""
    names = ("windows-now", "window-changes", "windows-before-after", "lost-goodput", "edges-compared", "first-flights")
    before = {name: lived.json("sql", name) for name in names}
    store = lived.open()
    for table in ("rollups", "path_decisions"):
        later = "* replace (toDateTime('2100-01-01 00:00:00', 'UTC') as round)"
        store.execute(f"insert into {table} select {later} from {table} final order by round desc limit 5")
    assert {name: lived.json("sql", name) for name in names} == before
    # The file's other tests have none.
    for table in ("rollups", "path_decisions"):
        store.execute(f"delete from {table} where round = '2100-01-01 00:00:00'")
    assert all("max(rollups.round)" not in question.sql for question in questions())


def test_a_users_query_takes_parameters_and_prints_csv(lived: Home) -> None:
    query = "select pop, count() as n from connections where pop = {pop:String} group by pop"
    assert lived.run("sql", query, "--set", "pop=fra", "--csv").stdout == f"pop,n\nfra,{32 * len(ROUNDS)}\n"
    assert "ams" in lived.run("sql", "busiest-prefixes").stdout
    assert "0 rows" in lived.run("sql", query, "--set", "pop=mars").stdout


def test_the_tables_are_listed_views_first_each_with_what_it_is_and_described(lived: Home) -> None:
    listed = lived.json("sql", "tables")
    kinds = [row["kind"] for row in listed]
    assert list(dict.fromkeys(kinds)) == ["view", "table", "dictionary"]
    assert kinds == sorted(kinds, key=["view", "table", "dictionary"].index)
    assert [row["name"] for row in listed if not row["description"].strip()] == []
    found = {row["name"]: row for row in listed}
    assert {"pairs", "round_pairs", "round_late", "tcp_samples", "audit", "rollups"} <= set(found)
    # These also hold what a run in progress has written, or are bookkeeping.
    assert not [name for name in found if name.startswith(("rollup_", "schema_")) or name.endswith("_revisions")]
    assert found["round_pairs"]["description"] == "One row a round, ordered pair of PoPs and IP version."
    for name, row in found.items():
        assert len(lived.json("sql", f"describe {name}")) == row["columns"], name
    assert [row["name"] for row in lived.json("sql", "tables", "--set", "pattern=pair%")] == [
        "pairs",
        "pair_days",
        "pair_hours",
    ]


@pytest.mark.parametrize(
    "query",
    [
        "drop table tcp_samples",
        "insert into rollups (round) values (1)",
        "truncate table rollups",
        "set readonly = 0",
        "delete from tcp_samples where 1",
    ],
)
def test_nothing_can_be_written(lived: Home, query: str) -> None:
    [line] = lived.refused("sql", query)
    assert "is not a SELECT" in line
    assert lived.json("sql", "select count() > 0 as some from tcp_samples") == [{"some": 1}]


def test_questions_are_listed_and_shown_and_mistakes_reported(lived: Home) -> None:
    assert {row["name"] for row in lived.json("sql")} == {question.name for question in questions()}
    assert lived.run("sql", "rtt-bands", "--show").stdout.startswith("-- How does delivery depend")
    assert lived.refused("sql", "worst-prefix")[0].endswith("did you mean worst-prefixes?")
    assert "hour: is not a parameter" in lived.refused("sql", "rtt-bands", "--set", "hour=1")[0]
    assert "write NAME=VALUE" in lived.refused("sql", "rtt-bands", "--set", "hours")[0]
    for value in ("abc", "-1", "5x", ""):
        [line] = lived.refused("sql", "rtt-bands", "--set", f"hours={value}")
        assert line == f"springtide: --set: hours: {value!r} is not a UInt32; give a UInt32 as hours=VALUE"
    [line] = lived.refused("sql", "select {at:DateTime} as at", "--set", "at=noon")
    assert "--set: at: 'noon' is not a DateTime; " in line
    [line] = lived.refused("sql", "select {some:UInt8} as n")
    assert line == "springtide: --set: some: is not given; add --set some=VALUE"
    assert json.loads(lived.run("sql", "rtt-bands", "--set", "pop=mars", "--json").stdout) == []


@pytest.mark.parametrize("name", ["tune-the-policy", "read-a-decision"])
def test_what_the_how_to_pages_do_works(
    lived: Home, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(instants, "now", lambda: ROUND + 120)
    (tmp_path / "calmer.yaml").write_text("initcwnd: {hysteresis: 0.4}\n")
    text = (DOCS / f"how-to/{name}.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("springtide ")]
    assert len(lines) >= 4
    for line in lines:
        assert lived.run(*shlex.split(line)[1:]).stdout, line
