"""The report of a day, as files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from springtide import instants
from springtide.errors import SpringtideError
from springtide.jobs.site import Site
from springtide.learn import report as reports
from springtide.learn.benefits import DAY_S, keep
from springtide.learn.report_page import page

FOLDER = "/var/lib/springtide/reports"


def daily(site: Site, now_unix_s: int, environment: Mapping[str, str] = os.environ) -> Path:
    """DAY.html and DAY.json in SPRINGTIDE_REPORT_DIR, of the newest whole day (UTC). Raises SpringtideError."""
    until = now_unix_s // DAY_S * DAY_S
    with site.open() as store:
        fleet, policy = site.fleet(), site.policy()
        made = reports.make(store, fleet, policy, keep(store, fleet, policy, until))
    folder = Path(environment.get("SPRINGTIDE_REPORT_DIR", FOLDER))
    path = folder / f"{instants.show(until - DAY_S)[:10]}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((path, page(made)), (path.with_suffix(".json"), json.dumps(made.as_dict(), indent=2))):
            temporary = name.with_name(f".{name.name}.{os.getpid()}")
            temporary.write_text(content)
            temporary.replace(name)
    except OSError as error:
        raise SpringtideError(f"{folder}: cannot be written: {error.strerror}; set SPRINGTIDE_REPORT_DIR") from error
    return path
