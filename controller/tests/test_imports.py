"""No circle of modules: what one imports never leads back to it; and laws that are imported have names of their own."""

from __future__ import annotations

import graphlib
import subprocess
import sys

import grimp
import pytest


@pytest.mark.parametrize("package", ["springtide", "lab", "testkit", "bench", "dashboards", "tools"])
def test_modules_form_no_circle(package: str) -> None:
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 3
    # Raises CycleError, which names them.
    graphlib.TopologicalSorter(imports).prepare()


def test_two_laws_of_one_name_are_refused_where_the_laws_are_listed() -> None:
    """Else the command, the task and the table of one would silently be the other's."""
    rename = "from springtide.laws.congestion.interface import Congestion; Congestion.name = 'initcwnd'"
    command = [sys.executable, "-c", f"{rename}; import springtide.laws.registry"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError: two laws have one name: initcwnd, initcwnd" in done.stderr
