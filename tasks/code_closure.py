"""The digest of the code that makes a stage's output.

A stage names one module. Its *closure* is every first-party module that this one can reach by
imports: at the top, inside functions, relative, through a package's `__init__`. A string that is
the dotted name of a first-party module counts as an import of it, since `python -m
training.worker` and `importlib.import_module` name modules so. Reaching too far costs a rebuild;
reaching too short would serve a stale artifact.

What is digested of a module is its syntax tree without positions and without strings that stand
alone as a statement (docstrings). A comment, a docstring or a reformatted line cannot change what
a stage writes, and must not retrain a model; anything else might, and does. The tree's shape
belongs to the Python minor version, so another one gives other digests.

A `SourceTree` reads all sources once, when it is made, and answers from that reading ever after:
an edit during a run must not give the artifacts of code that is already loaded the key of code
that is not. `drift` says what was edited since.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("data_curation", "training", "evaluation", "tasks", "flows", "infra")


@dataclass(frozen=True)
class _Parsed:
    """A module's digest and the dotted names that its text may import."""

    sha256: str
    names: frozenset[str]


class SourceTree:
    """The first-party source files, as they were when this object was made.

    Args:
        root: the folder that holds the packages.
        packages: names of the first-party packages; those that do not exist are empty.
    """

    def __init__(self, root: Path, packages: Iterable[str] = PACKAGES) -> None:
        self.root = root
        self.packages = tuple(packages)
        self._sources: dict[str, tuple[Path, bytes]] = {}
        self._parsed: dict[str, _Parsed] = {}
        for package in self.packages:
            for path in sorted((root / package).rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self._sources[name] = (path, path.read_bytes())

    @classmethod
    def installed(cls) -> SourceTree:
        """Return the tree that this very module belongs to."""
        return cls(Path(__file__).resolve().parent.parent)

    def closure(self, module: str) -> list[str]:
        """Return the names of all modules that `module` reaches, itself included, sorted.

        Raises:
            ValueError: there is no such module.
            SyntaxError: one of them cannot be parsed.
        """
        if module not in self._sources:
            raise ValueError(f"{self.root} has no module {module}, which a stage names as its code")
        reached: set[str] = set()
        waiting = [module]
        while waiting:
            name = waiting.pop()
            if name in reached or name not in self._sources:
                continue
            reached.add(name)
            waiting.extend(self._ancestors(name))
            for imported in self._parse(name).names:
                if imported.endswith(".*"):
                    waiting.extend(self._children(imported.removesuffix(".*")))
                else:
                    waiting.extend([imported, *self._ancestors(imported)])
        return sorted(reached)

    def digest(self, module: str, data: tuple[str, ...] = ()) -> str:
        """Return the digest of a stage's code.

        Args:
            module: dotted name of the stage's module.
            data: files beside the code that shape the output, relative to the root; a folder
                ("evaluation/templates") stands for all files below it.

        Raises:
            ValueError: no such module, no such file, or an empty folder.
        """
        modules = [[name, self._parse(name).sha256] for name in self.closure(module)]
        files = [[name, hashlib.sha256(content).hexdigest()] for name, content in self._data(data)]
        return hashlib.sha256(json.dumps([modules, files]).encode()).hexdigest()

    def drift(self, module: str, data: tuple[str, ...], digest: str) -> list[str]:
        """Return what was edited on disk since `digest` was taken: modules, or else the data.

        Empty when the code still is what `digest` says.
        """
        now = SourceTree(self.root, self.packages)
        edited = [name for name in self.closure(module) if not self._same(now, name)]
        if not edited and data and now.digest(module, data) != digest:
            return list(data)
        return edited

    def _same(self, other: SourceTree, name: str) -> bool:
        if name not in other._sources:
            return False
        if self._sources[name][1] == other._sources[name][1]:
            return True
        try:
            return self._parse(name).sha256 == other._parse(name).sha256
        except SyntaxError:
            return False

    def _data(self, data: tuple[str, ...]) -> Iterable[tuple[str, bytes]]:
        for name in data:
            top = self.root / name
            paths = sorted(path for path in top.rglob("*") if path.is_file())
            if top.is_file():
                paths = [top]
            if not paths:
                raise ValueError(f"{self.root} has no file {name}, which a stage names as its data")
            for path in paths:
                yield path.relative_to(self.root).as_posix(), path.read_bytes()

    @staticmethod
    def _ancestors(name: str) -> list[str]:
        parts = name.split(".")
        return [".".join(parts[:length]) for length in range(1, len(parts))]

    def _children(self, package: str) -> list[str]:
        return [name for name in self._sources if name.rpartition(".")[0] == package]

    def _parse(self, name: str) -> _Parsed:
        if name not in self._parsed:
            path, source = self._sources[name]
            tree = _WithoutBareStrings().visit(ast.parse(source, filename=str(path)))
            # The package that relative imports start from.
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            self._parsed[name] = _Parsed(
                sha256=hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest(),
                names=frozenset(_imported_names(tree, package, self.packages)),
            )
        return self._parsed[name]


class _WithoutBareStrings(ast.NodeTransformer):
    """Drops the statements that are nothing but a string: docstrings and notes on attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        bare = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if bare else node


def _imported_names(tree: ast.AST, package: str, packages: tuple[str, ...]) -> Iterable[str]:
    dotted_name = re.compile(rf"(?:{'|'.join(map(re.escape, packages))})(?:\.\w+)+")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _origin(node, package)
            yield base
            # `from package import name` imports a module where `name` is one.
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and dotted_name.fullmatch(node.value)
        ):
            yield node.value


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)
