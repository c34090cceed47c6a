"""Imports point one way: flows -> tasks -> libraries; infra imports none of the libraries."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"flows", "tasks", "data_curation", "training", "evaluation", "infra"}
LIBRARIES = {"data_curation", "training", "evaluation"}
MAY_IMPORT = {
    "flows": PACKAGES,
    "tasks": PACKAGES - {"flows"},
    "infra": {"infra"},
    **{library: {library} for library in LIBRARIES},
}
ORCHESTRATION = {"flows", "tasks"}


def imported_packages(source: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_imports_only_what_the_design_allows(package):
    assert modules(package)
    wrong = {
        str(module.relative_to(ROOT)): forbidden
        for module in modules(package)
        if (forbidden := (imported_packages(module) & PACKAGES) - MAY_IMPORT[package])
    }
    assert not wrong


def test_only_flows_tasks_and_infra_know_prefect():
    knowing = {
        str(module.relative_to(ROOT))
        for package in LIBRARIES
        for module in modules(package)
        if "prefect" in imported_packages(module)
    }
    assert not knowing
