"""The edge's file must run where nothing but an old distribution's Python is."""

from __future__ import annotations

import ast
import sys

from testkit.edge import SCRIPT


def test_the_syntax_is_that_of_python_3_8() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 8))


def test_only_the_standard_library_is_imported() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names


def test_nothing_newer_than_python_3_8_is_evaluated_outside_annotations() -> None:
    """`str | None` and `list[str]` are fine in annotations, which are never evaluated; elsewhere they are not."""
    tree = ast.parse(SCRIPT.read_text())
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None
        for inner in ast.walk(annotation)
    }
    builtin_generics = {"dict", "frozenset", "list", "set", "tuple", "type"}
    newer_methods = {"removeprefix", "removesuffix", "is_relative_to", "readlink", "bit_count"}
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            assert node.value.id not in builtin_generics, f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in newer_methods, f"line {node.lineno}"
