"""The recipe: one YAML file, one value.

A recipe says what a run does, from sources to scores. It is checked before any work, whole: every
fault is found in one go and named by field, with both values and the remedy. A `Recipe` object
that exists has passed the checks that need no look at the disk; `load_recipe` does those as well.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator

from data_curation.config import SOURCE_NAME, CurationConfig, Source, TokenizerConfig
from evaluation.config import EvaluationConfig
from training.config import TrainingConfig


class RunConfig(BaseModel):
    """How the run is executed on this machine. Changes no result, so enters no artifact's key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_workers: PositiveInt = Field(
        2, le=1024, description="Processes for ingest, curation, tokenization."
    )
    launcher: Literal["fork", "torchrun"] = Field(
        "fork", description="fork starts CPU ranks in a third of the time; GPUs need torchrun."
    )


class Recipe(BaseModel):
    """Everything that defines a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=60)
    description: str = ""
    seed: int = Field(1234, ge=0, lt=2**63)
    sources: tuple[Source, ...] = Field(min_length=1)
    curation: CurationConfig = CurationConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @field_validator("sources")
    @classmethod
    def _named_once(cls, value: tuple[Source, ...]) -> tuple[Source, ...]:
        names = [source.name for source in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are called {', '.join(twice)}; give each its own name")
        bad = [name for name in names if not SOURCE_NAME.fullmatch(name)]
        if bad:
            raise ValueError(f"{bad[0]!r} is no source name; use letters, digits, '.', '_' and '-'")
        return value

    def to_yaml(self) -> str:
        """The whole recipe, defaults included, as it can be run again."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


class Fault(NamedTuple):
    """One thing that is wrong with a recipe."""

    field: str
    message: str


class RecipeError(ValueError):
    """A recipe that cannot run, with all its faults."""

    def __init__(self, recipe: str, faults: Sequence[Fault]) -> None:
        self.recipe = recipe
        self.faults = list(faults)
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        lines = "\n".join(
            f"  {f.field}: {f.message}" if f.field else f"  {f.message}" for f in faults
        )
        super().__init__(f"{recipe}: {count}, nothing was run.\n{lines}")


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
    recipe, found = _validate(raw)
    faults += found
    if recipe is not None:
        unwritable = list(_unwritable_texts(recipe.model_dump(), ()))
        faults += unwritable or _faults_on_disk(recipe)
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
        raise RecipeError(_short(name_or_path), [fault]) from None
    near = get_close_matches(name_or_path, built_in, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    names = "\n".join(f"    {name}" for name in built_in)
    what = (
        "is a folder, not a recipe" if path.is_dir() else "is neither a built-in recipe nor a file"
    )
    raise RecipeError(name_or_path, [Fault("", f"{what}.{hint} Built-in recipes:\n{names}")])


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
_TOO_LARGE = 2**63


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
        return Fault(key, f"{_short(value)} is no YAML value ({error.problem}); quote it")
    except (yaml.YAMLError, ValueError, RecursionError):
        return Fault(key, f"{_short(value)} is no YAML value; quote it")
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


def _validate(raw: dict[str, Any]) -> tuple[Recipe | None, list[Fault]]:
    """Find all faults: where a field is wrong, set it aside and check the rest again.

    pydantic compares fields with each other only once each of them is right by itself; without
    the second look a user would meet those faults one run later.
    """
    faults: list[Fault] = []
    set_aside: list[tuple[int | str, ...]] = []
    while True:
        try:
            return Recipe.model_validate(raw), faults
        except ValidationError as error:
            entries = error.errors(include_url=False)
        places = [entry["loc"] for entry in entries] + set_aside
        removed = False
        for entry in entries:
            # What holds a faulty field may be faulty only for the lack of it.
            follows = entry["loc"] in set_aside or any(
                _lies_within(place, entry["loc"]) for place in places
            )
            if entry["type"] == "inconsistent" or not follows:
                faults += [fault for fault in _explain(entry) if fault not in faults]
            removed |= _remove(raw, entry["loc"])
        set_aside = places
        if not removed:
            return None, faults


def _lies_within(place: tuple[int | str, ...], holder: tuple[int | str, ...]) -> bool:
    return len(place) > len(holder) and place[: len(holder)] == holder


def _remove(raw: Any, location: tuple[int | str, ...]) -> bool:
    """Take the faulty value out; False where that would change nothing."""
    parents: list[tuple[Any, int | str]] = []
    for part in location:
        try:
            inner = raw[part]
        except (KeyError, IndexError, TypeError):
            continue  # A union's tag, or a field that is missing.
        parents.append((raw, part))
        raw = inner
    for holder, part in reversed(parents):
        if isinstance(holder, dict):
            del holder[part]
            return True
    return False


def _unwritable_texts(value: Any, location: tuple[int | str, ...]) -> Iterator[Fault]:
    """Halves of characters, which YAML can spell and no file can hold; also of a folder's name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unwritable_texts(inner, (*location, key))
    elif isinstance(value, tuple | list):
        for number, inner in enumerate(value):
            yield from _unwritable_texts(inner, (*location, number))
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            field = ".".join(str(part) for part in location)
            yield Fault(field, f"{value!r} is no valid Unicode text; write or name it otherwise")


def _explain(error: Mapping[str, Any]) -> Iterator[Fault]:
    location = list(error["loc"])
    field = ".".join(str(part) for part in _without_tags(location))
    kind, context, given = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "inconsistent":
        for name, message in context["faults"]:
            yield Fault(f"{field}.{name}", message)
    elif kind == "extra_forbidden":
        model = _model_at(location[:-1])
        known = list(model.model_fields) if model else []
        near = get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        yield Fault(field, f"unknown key; {hint}")
    elif kind == "missing":
        yield Fault(field, "is missing")
    elif kind == "literal_error":
        yield Fault(
            field, f"{given!r} is not one of {context['expected']}{_nearest(given, context)}"
        )
    elif kind == "union_tag_invalid":
        yield Fault(
            f"{field}.reader", f"{context['tag']!r} is not one of {context['expected_tags']}"
        )
    elif kind == "union_tag_not_found":
        yield Fault(f"{field}.reader", "is missing; say which reader reads this source")
    else:
        message = error["msg"].removeprefix("Value error, ")
        # Our own validators name the value; pydantic's leave that to us.
        shown = "" if kind == "value_error" else f" (got {_short(given)})"
        yield Fault(field, message[0].lower() + message[1:] + shown)


def _nearest(given: Any, context: Mapping[str, Any]) -> str:
    options = [part.strip(" '") for part in context["expected"].replace(" or ", ",").split(",")]
    near = get_close_matches(str(given), options, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _short(value: Any) -> str:
    # Not all of it: YAML's references make values whose text would fill the memory.
    text = "null" if value is None else _REPR.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def _without_tags(location: Sequence[int | str]) -> list[int | str]:
    """Drop the reader's name that pydantic puts after the number of a source."""
    if len(location) >= 3 and location[0] == "sources":
        return [*location[:2], *location[3:]]
    return list(location)


def _model_at(location: Sequence[int | str]) -> type[BaseModel] | None:
    """The config model that stands at a place in the recipe."""
    model: type[BaseModel] = Recipe
    if location[:1] == ["sources"]:
        members = get_args(get_args(Source)[0])
        found = [m for m in members if get_args(m.model_fields["reader"].annotation)[0] in location]
        return found[0] if found else None
    for part in location:
        if part not in model.model_fields:
            return None
        annotation = model.model_fields[str(part)].annotation
        candidates = [annotation, *get_args(annotation)] if get_origin(annotation) else [annotation]
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _faults_on_disk(recipe: Recipe) -> Iterator[Fault]:
    # Read only here: a recipe that is wrong by itself needs no look at the disk.
    from data_curation.bpe import tokenizer_faults
    from data_curation.readers import faults as source_faults

    for number, source in enumerate(recipe.sources):
        for message in source_faults(source):
            yield Fault(f"sources.{number}", message)
    for message in tokenizer_faults(recipe.tokenizer):
        yield Fault("tokenizer", message)
