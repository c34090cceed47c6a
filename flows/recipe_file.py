"""A recipe as text: a built-in one or a user's file, with overrides.

It is checked before any work, whole: every fault is found in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from flows.recipe import Recipe
from flows.recipe_faults import Fault, RecipeError, check, shortened


def built_in_recipes() -> dict[str, str]:
    """Text of each built-in recipe by name, in order of name."""
    folder = files("flows") / "recipes"
    found = {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    }
    return dict(sorted(found.items()))


def load_recipe(name_or_path: str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a built-in recipe or a file, apply `key=value` overrides, check everything.

    Paths in a file are relative to that file; paths in overrides, to the working directory.

    Raises:
        RecipeError: with every fault found.
    """
    text, folder = _read(name_or_path)
    raw = _parse(name_or_path, text)
    _make_paths_absolute(raw, folder)
    faults = [fault for override in overrides if (fault := _override(raw, override))]
    _make_paths_absolute(raw, Path.cwd())
    recipe, found = check(raw)
    faults += found
    if faults or recipe is None:
        raise RecipeError(name_or_path, faults)
    return recipe


def _read(name_or_path: str) -> tuple[str, Path]:
    built_in = built_in_recipes()
    if name_or_path in built_in:
        return built_in[name_or_path], Path.cwd()
    path = Path(name_or_path)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8"), path.resolve().parent
    except UnicodeDecodeError as error:
        fault = Fault("", f"not UTF-8 at byte {error.start}; save the file as UTF-8")
        raise RecipeError(name_or_path, [fault]) from None
    except OSError as error:
        fault = Fault("", f"cannot be read: {error.strerror}")
        raise RecipeError(shortened(name_or_path), [fault]) from None
    near = get_close_matches(name_or_path, built_in, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    names = "\n".join(f"    {name}" for name in built_in)
    what = (
        "is a folder, not a recipe" if path.is_dir() else "is neither a built-in recipe nor a file"
    )
    raise RecipeError(name_or_path, [Fault("", f"{what}.{hint} Built-in recipes:\n{names}")])


_TOO_LARGE = 2**63
"""Seeds are below it, counts far below."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not a silent overwrite.

    So is a number that no part of the program could count to.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # `<<` may stand beside keys that it also brings: they win.
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is no text", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            value = int(super().construct_yaml_int(node))
        except ValueError:
            value = _TOO_LARGE
        if abs(value) >= _TOO_LARGE:
            raise yaml.MarkedYAMLError(
                problem="the number is too large; numbers end below 2^63",
                problem_mark=node.start_mark,
            )
        return value


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _UniqueKeyLoader.construct_yaml_int)


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        # A subclass of SafeLoader: it builds plain values only.
        raw = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise RecipeError(name, [Fault("", f"{where}{error.problem or error.context}")]) from None
    except yaml.YAMLError as error:
        raise RecipeError(name, [Fault("", str(error).replace("\n", " "))]) from None
    except RecursionError:
        raise RecipeError(name, [Fault("", "is nested too deeply to be a recipe")]) from None
    except ValueError as error:  # A date that no calendar has.
        raise RecipeError(name, [Fault("", f"holds a value that is none: {error}")]) from None
    if not isinstance(raw, dict):
        raise RecipeError(name, [Fault("", "holds no mapping; a recipe starts with `name: …`")])
    return raw


def _make_paths_absolute(raw: dict[str, Any], folder: Path) -> None:
    sources, tokenizer = raw.get("sources"), raw.get("tokenizer")
    holders = [*(sources if isinstance(sources, list) else []), tokenizer]
    for holder in holders:
        if isinstance(holder, dict) and isinstance(holder.get("path"), str) and holder["path"]:
            holder["path"] = str(folder / Path(holder["path"]).expanduser())


def _override(raw: dict[str, Any], override: str) -> Fault | None:
    key, equals, value = override.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        return Fault(override, "is no override; write key=value, as in training.train_tokens=2M")
    try:
        parsed = yaml.load(value, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        return Fault(key, f"{shortened(value)} is no YAML value ({error.problem}); quote it")
    except (yaml.YAMLError, ValueError, RecursionError):
        return Fault(key, f"{shortened(value)} is no YAML value; quote it")
    holder: Any = raw
    for part in path[:-1]:
        step = _step_into(holder, part)
        if step is None:
            return Fault(key, f"nothing is called {part!r} there; see `mtnlg recipes show`")
        holder = step
    return _set(holder, path[-1], parsed, key)


def _step_into(holder: Any, part: str) -> Any:
    if isinstance(holder, dict):
        if holder.get(part) is None:
            holder[part] = {}
        return holder[part]
    if isinstance(holder, list) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    return None


def _set(holder: Any, part: str, value: Any, key: str) -> Fault | None:
    if isinstance(holder, dict):
        holder[part] = value
    elif isinstance(holder, list) and part.isdecimal() and int(part) < len(holder):
        holder[int(part)] = value
    else:
        return Fault(key, f"nothing is called {part!r} there; see `mtnlg recipes show`")
    return None
