"""Tries what a server's users.xml lets its users do, on the engine in process, which reads the same files.

That engine runs queries as one user, `default`. The files' rules for `default` are tried as they are; another user is
tried by giving `default` that user's profile and grants beside its own, which dictionaries need.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

# As the packages and images of ClickHouse bring it.
PACKAGED = """<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default>
<password></password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
<access_management>1</access_management></default></users></clickhouse>"""

ASK = """
import json, sys
from chdb.session import Session
session = Session(sys.argv[1])
answers = []
for query in json.load(sys.stdin):
    try:
        answers.append(str(session.query(query, "TSVRaw")).strip())
    except Exception as error:
        answers.append(f"refused: {error}")
session.close()
print(json.dumps(answers))
"""

MIGRATE = """
import sys
from chdb.session import Session
from springtide.store.migrations import read_migrations
session = Session(sys.argv[1])
session.query("create database springtide")
session.query("use springtide")
for migration in read_migrations():
    for statement in migration.rendered(None):
        session.query(statement)
session.query("insert into fleet_prefixes values ('198.51.100.0/24', 'ams')")
session.close()
"""

LOOK_UP = "select dictGetOrDefault('springtide.fleet_pops', 'pop', toIPv6('198.51.100.7'), '')"
INSERT = "insert into springtide.tcp_samples (host, cookie, src_ip) values ('h', 1, '::ffff:198.51.100.7')"
INSERTED = "select count(), any(src_pop) from springtide.tcp_samples"


def make_store(folder: Path) -> Path:
    """The schema in a database `springtide` with one prefix, made by a user who may do everything."""
    subprocess.run([sys.executable, "-c", MIGRATE, folder], check=True, capture_output=True)
    return folder


def run_queries(store: Path, users: str, queries: Sequence[str]) -> list[str]:
    """The answers, or `refused: ` and why, to who is `default` by the file `users` beside the packaged one."""
    etc = store.with_name(f"{store.name}-etc")
    (etc / "users.d").mkdir(parents=True, exist_ok=True)
    (etc / "users.xml").write_text(PACKAGED)
    (etc / "users.d/springtide.xml").write_text(users)
    (etc / "config.xml").write_text(
        f"<clickhouse><user_directories><users_xml><path>{etc}/users.xml</path></users_xml></user_directories></clickhouse>"
    )
    command = [sys.executable, "-c", ASK, f"{store}?config-file={etc}/config.xml"]
    done = subprocess.run(command, input=json.dumps(queries), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answers: list[str] = json.loads(done.stdout)
    return answers


def acting(users: str, name: str) -> str:
    """The file with `default` in the place of the user `name`."""
    root = ET.fromstring(users)  # noqa: S314 (the repository's own file)
    found, own = _part(root, f"users/{name}"), _part(root, "users/default")
    given = found.find("grants")
    if given is None:
        own.remove(_part(own, "grants"))
    else:
        _part(own, "grants").extend(given)
    _part(own, "profile").text = _part(found, "profile").text
    return ET.tostring(root, encoding="unicode")


def _part(of: ET.Element, path: str) -> ET.Element:
    found = of.find(path)
    if found is None:
        raise ValueError(path)
    return found


def is_refused(answer: str) -> bool:
    """Whether the engine refused for lack of a grant."""
    return answer.startswith("refused: ") and ("Not enough privileges" in answer or "readonly mode" in answer)


def faults_of_default(store: Path, users: str) -> list[str]:
    """`default` must fill dictionaries, from this machine only, and do nothing else: what is not so."""
    forbidden = [
        "select count() from springtide.tcp_samples",
        "insert into springtide.fleet_prefixes values ('0.0.0.0/0', 'x')",
        "create table springtide.x (x UInt8) engine = Memory",
    ]
    looked, prefixes, *answers = run_queries(
        store, users, [LOOK_UP, "select count() from springtide.fleet_prefixes", *forbidden]
    )
    faults = [query for query, answer in zip(forbidden, answers, strict=True) if not is_refused(answer)]
    # The dictionary was filled: what is missing is the right of the querying user, not of the one that the dictionary
    # logs in as.
    if "grant dictGet ON springtide.fleet_pops" not in looked:
        faults.append(f"a dictionary is not filled: {looked}")
    if prefixes != "1":
        faults.append(f"fleet_prefixes: {prefixes}")
    root = ET.fromstring(users)  # noqa: S314
    if {ip.text for ip in root.findall("users/default/networks/*")} != {"127.0.0.1", "::1"}:
        faults.append("others than this machine may be default")
    return faults
