"""What an artifact is: a folder of files, and a manifest that says all about them.

An artifact is known by two digests. Its *key* says what it should be: digest of the stage's name,
code and configuration, and of the content of what the stage reads. Its *digest* says what it is:
paths, sizes and SHA-256 of its files. The key of a later stage is made from digests, not keys, so
a stage that is rebuilt with equal output causes no further work.

`manifest.json` guards itself: it holds a checksum of its own text, the text is the only one that
its values can have, and the key and digest in it follow from the rest. A changed byte anywhere in
an artifact, manifest included, is therefore found.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

MANIFEST = "manifest.json"

Figure: TypeAlias = bool | int | float | str | None
Figures: TypeAlias = Mapping[str, Figure]
"""Key figures of an artifact by name, the most telling first."""

Origin: TypeAlias = Literal["built", "reused", "resumed"]
"""How a process came by an artifact: built from nothing, as it was, or on from a checkpoint."""


@dataclass(frozen=True)
class Stage:
    """A kind of artifact and the code that makes it.

    Attributes:
        name: lower-case name of the stage; names the folder of its artifacts.
        module: the library module whose first-party imports are the stage's code.
        resumable: keep what a killed or failed build left, for the next build to go on from.
        data: files or folders beside the code that shape the output ("evaluation/templates").
    """

    name: str
    module: str
    resumable: bool = False
    data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", self.name), self.name


class FileRecord(BaseModel):
    """A file of an artifact: its path with forward slashes, bytes, and SHA-256 in hexadecimal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    size: int
    sha256: str


class InputRecord(BaseModel):
    """An artifact that was read to make another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    key: str
    digest: str


class Manifest(BaseModel):
    """Everything known about an artifact, written when it is published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    stage: str
    key: str
    digest: str
    code_digest: str
    config: dict[str, Any]
    inputs: dict[str, InputRecord]
    raw_inputs: dict[str, str]
    files: list[FileRecord]
    versions: dict[str, str]
    figures: dict[str, Figure]
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    created: str
    host: str
    checksum: str = ""

    def derived_key(self) -> str:
        """Return the key that follows from the code, configuration and inputs recorded here."""
        digests = {name: given.digest for name, given in self.inputs.items()}
        return artifact_key(self.stage, self.code_digest, self.config, digests, self.raw_inputs)

    def to_text(self) -> str:
        """Return the one text that stands for these values."""
        blank = self.model_copy(update={"checksum": ""})
        return self._text(hashlib.sha256(blank._text("").encode()).hexdigest())

    def _text(self, checksum: str) -> str:
        values = self.model_dump(mode="json") | {"checksum": checksum}
        return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Artifact:
    """A published artifact, and how this process came by it."""

    stage: str
    key: str
    digest: str
    folder: Path
    manifest: Manifest
    origin: Origin


@dataclass(frozen=True)
class Fault:
    """A way in which an artifact is not what its manifest says.

    Attributes:
        file: path within the artifact.
        recorded: what the manifest says.
        found: what is there.
    """

    file: str
    recorded: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: recorded {self.recorded}, found {self.found}"


class ArtifactDamaged(ValueError):  # noqa: N818  (a state, which commands show as well)
    """A finished artifact that cannot be used, with all that is wrong with it."""

    def __init__(self, stage: str, folder: Path, faults: Sequence[Fault]) -> None:
        self.stage = stage
        self.folder = folder
        self.faults = list(faults)
        shown = [f"  {fault}" for fault in self.faults[:10]]
        if len(self.faults) > len(shown):
            shown.append(f"  and {len(self.faults) - len(shown)} more")
        super().__init__(
            "\n".join(
                [
                    f"the artifact {folder} is damaged and will not be used:",
                    *shown,
                    f"  `mtnlg run … --force {stage}` builds it again.",
                ]
            )
        )


def content_digest(files: Iterable[FileRecord]) -> str:
    """Return the digest of a set of files: of their paths, sizes and contents, in path order."""
    rows = sorted([file.path, file.size, file.sha256] for file in files)
    return _sha256_of(rows)


def artifact_key(
    stage: str,
    code_digest: str,
    config: Mapping[str, Any],
    input_digests: Mapping[str, str],
    raw_inputs: Mapping[str, str],
) -> str:
    """Return the key: what an artifact's content should depend on, and nothing else."""
    return _sha256_of([stage, code_digest, config, input_digests, raw_inputs])


def read_manifest(stage: str, folder: Path) -> Manifest:
    """Read and check the manifest of a published artifact.

    Raises:
        ArtifactDamaged: the manifest is missing, is not one, or was changed.
    """

    def damaged(recorded: str, found: str) -> ArtifactDamaged:
        return ArtifactDamaged(stage, folder, [Fault(MANIFEST, recorded, found)])

    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        manifest = Manifest.model_validate_json(text)
    except FileNotFoundError:
        raise damaged("a manifest", "no such file") from None
    except UnicodeDecodeError as error:
        raise damaged("UTF-8 text", str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise damaged("a manifest of format 1", f"{where} {first['msg']}".strip()) from None
    expected = manifest.to_text()
    if text != expected:
        checksum = json.loads(expected)["checksum"]
        raise damaged(f"checksum {manifest.checksum}", f"checksum {checksum}")
    if manifest.stage != stage:
        raise damaged(f"stage {manifest.stage}", f"the folder of stage {stage}")
    if manifest.digest != (digest := content_digest(manifest.files)):
        raise damaged(f"digest {manifest.digest}", f"files of digest {digest}")
    if manifest.key != (key := manifest.derived_key()):
        raise damaged(f"key {manifest.key}", f"configuration and inputs of key {key}")
    return manifest


def plain_json(value: Any, name: str) -> Any:
    """Return `value` as JSON reads it back, so that a key cannot depend on how it was written.

    Raises:
        ValueError: something in it, named by its path, is not JSON.
    """
    match value:
        case None | bool():
            return value
        case str():
            if value != value.encode("utf-8", "replace").decode():
                raise ValueError(f"{name} is {value!r}, which is no valid Unicode text")
            return str(value)
        case Integral():
            return int(value)
        case Real():
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which JSON cannot hold; give a finite number")
            return float(value)
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"{name} has the key {key!r}; keys must be strings")
            return {str(key): plain_json(item, f"{name}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [plain_json(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise ValueError(
        f"{name} is a {type(value).__name__}, which JSON cannot hold; "
        "give strings, numbers, booleans, lists and mappings"
    )


def _sha256_of(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
