"""What is wrong with a recipe: each fault by its field, with both values and the remedy."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from data_curation.config import Source
from flows.recipe import Recipe

_SHOWN_CHARACTERS = 60
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _SHOWN_CHARACTERS


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


def check(raw: dict[str, Any]) -> tuple[Recipe | None, list[Fault]]:
    """Make a recipe of plain values and find all that is wrong with it.

    Args:
        raw: what the YAML holds, paths absolute. Faulty values are taken out of it.

    Returns:
        The recipe, or None if its values do not make one; and every fault. Only a recipe without
        faults can run: one whose values are right may name files that are not there.
    """
    recipe, faults = _validate(raw)
    if recipe is not None:
        unwritable = list(_unwritable_texts(recipe.model_dump(), ()))
        faults += unwritable or _faults_on_disk(recipe)
    return recipe, faults


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
        shown = "" if kind == "value_error" else f" (got {shortened(given)})"
        yield Fault(field, message[0].lower() + message[1:] + shown)


def _nearest(given: Any, context: Mapping[str, Any]) -> str:
    options = [part.strip(" '") for part in context["expected"].replace(" or ", ",").split(",")]
    near = get_close_matches(str(given), options, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shortened(value: Any) -> str:
    """Show a value as YAML's user knows it, in a few words."""
    # Not all of it: YAML's references make values whose text would fill the memory.
    text = "null" if value is None else _REPR.repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


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
