"""Documentation of installed packages: docstrings, and the text documents shipped beside them.

Packages are found, never imported. A document is the docstring of a module, class or function,
located as `package/file.py#Class.method`, or a text document as a whole; its group is the file.
Test suites, vendored copies of other packages and files that only machines read are left out. So
are Python files without a triple quote: what docstrings they may have are single lines, and not
parsing them saves time.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from data_curation.config import InstalledDocumentationSource
from data_curation.faults import faults_of
from data_curation.readers.text_folder import read_text_file
from data_curation.readers.units import InputFile, Record, Rejection, Unit, whole_files

STANDARD_LIBRARY = "stdlib"
TEXT_SUFFIXES = (".txt", ".rst", ".md")

# config-3.11-x86_64-linux-gnu holds what it takes to embed Python.
SKIPPED_FOLDERS = re.compile(
    r"_?tests?|testing|_?vendor(ed)?|third_party|extern(als)?|idlelib|lib2to3"
    r"|(site|dist)-packages|node_modules|__pycache__|config-.*|\..*"
)
SKIPPED_FILES = re.compile(
    r"test_.*\.py|.*_test\.py|conftest\.py|cmakelists\.txt|requirements.*\.txt", re.IGNORECASE
)


class InstalledDocumentationReader:
    """Reads the packages in the order in which the source names them."""

    def __init__(self, source: InstalledDocumentationSource) -> None:
        self._source = source

    def files(self) -> list[InputFile]:
        files: dict[str, InputFile] = {}
        for package in self._source.packages:
            found = _files_of(package)
            if not found:
                raise ValueError(
                    f"package {package!r} is installed but has no Python file or text document. "
                    "Leave it out."
                )
            files.update((file.name, file) for file in found)
        return list(files.values())

    def faults(self) -> list[str]:
        packages = self._source.packages
        return [fault for name in packages for fault in faults_of(partial(_roots_of, name))]

    def units(self) -> list[Unit]:
        return whole_files(self.files())

    def read(self, unit: Unit) -> Iterator[Record | Rejection]:
        if unit.file.path.suffix != ".py":
            yield read_text_file(unit.file)
            return
        source = unit.file.path.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            return
        try:
            with warnings.catch_warnings():
                # Of invalid escapes and the like; they are their author's business.
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            yield Rejection(unit.file.name, line, f"Python cannot parse it: {error}")
            return
        yield from _docstrings(unit.file.name, tree)


def _docstrings(name: str, tree: ast.Module) -> Iterator[Record]:
    """The docstrings of a module, in the order of its lines."""
    seen: set[str] = set()
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        path, node = waiting.pop()
        inner = path
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not isinstance(node, ast.Module):
                path = f"{path}.{node.name}" if path else node.name
                # The setter beside the getter, or the other branch of an if.
                inner = path if path not in seen else f"{path}@{node.lineno}"
                seen.add(path)
            if text := ast.get_docstring(node):
                yield Record(name, f"{name}#{inner}" if inner else name, text)
        children = [
            (inner, child)
            for block in ("body", "handlers", "orelse", "finalbody", "cases")
            for child in getattr(node, block, ())
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
        ]
        waiting.extend(reversed(children))


def _files_of(package: str) -> list[InputFile]:
    found = []
    for root in _roots_of(package):
        top = package.replace(".", "/")
        if root.is_file():
            found.append(InputFile(root, f"{top}{root.suffix}"))
            continue
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if not SKIPPED_FOLDERS.fullmatch(name)]
            prefix = "/".join([top, *Path(folder).relative_to(root).parts])
            found += [
                InputFile(Path(folder, name), f"{prefix}/{name}")
                for name in names
                if name.endswith((".py", *TEXT_SUFFIXES)) and not SKIPPED_FILES.fullmatch(name)
            ]
    return sorted((file for file in found if file.path.is_file()), key=lambda file: file.name)


def _roots_of(package: str) -> list[Path]:
    """The folders of a package, or the file of a module that is no package.

    Raises:
        ValueError: it is not installed, or has no files.
    """
    if package == STANDARD_LIBRARY:
        return [Path(sysconfig.get_path("stdlib"))]
    spec = _find_spec(package)
    if spec is None:
        raise ValueError(
            f"package {package!r} is not installed. Install it (by import name: {package}), or "
            "leave it out."
        )
    if spec.submodule_search_locations is not None:
        return sorted(Path(folder) for folder in spec.submodule_search_locations)
    if spec.has_location and spec.origin and spec.origin.endswith(".py"):
        return [Path(spec.origin)]
    raise ValueError(f"package {package!r} is compiled and has no Python file. Leave it out.")


def _find_spec(package: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`, which would import the parents of a dotted name."""
    first, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(first)
        name = first
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return None
            name = f"{name}.{part}"
            spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError):
        return None
    return spec
