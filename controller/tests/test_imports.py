"""No circle of modules: what one imports never leads back to it."""

from __future__ import annotations

import graphlib

import grimp
import pytest


@pytest.mark.parametrize("package", ["springtide", "lab", "testkit", "bench", "dashboards", "tools"])
def test_modules_form_no_circle(package: str) -> None:
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 3
    # Raises CycleError, which names them.
    graphlib.TopologicalSorter(imports).prepare()
