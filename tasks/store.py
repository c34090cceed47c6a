"""The artifact store: one folder in which every finished piece of work is kept and found again.

    root/artifacts/<stage>/<first 16 digits of the key>/    a finished artifact
    root/artifacts/<stage>/<16 digits>.<token>.partial/     a build under way, or what a killed
                                                            one left
    root/artifacts/<stage>/<16 digits>.<token>.replaced/    the old one while a forced build takes
                                                            its place
    root/artifacts/<stage>/<16 digits>.<token>.discarded/   on its way to be deleted
    root/locks/                                             leases
    root/digests.sqlite                                     digests of files that did not change

What holds at every moment, through kill -9 and loss of power:

- A folder under its final name is whole. It gets that name by one rename, after its files and
  then its manifest are on the disk.
- Nothing is used unchecked. A hit compares the set of files, every size, and every SHA-256; a
  file is read for that unless its size, times and inode are those it had when it was last read
  (`tasks.content_digest`). `verify` reads all.
- One key has one builder. Another that comes waits, then uses the result. A builder that lost
  its lease publishes nothing; its partial folder has a name of its own, so it cannot write into
  the folder of its successor either.
- A forced build leaves the old artifact in place until the new one is whole. Between its two
  renames the key has no artifact; a crash there leaves the old one aside, and the next builder
  puts it back. A run that reads the old files at this moment may find them gone and fail.
"""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import os
import platform
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasks.artifacts import (
    MANIFEST,
    Artifact,
    ArtifactDamaged,
    Fault,
    FileRecord,
    InputRecord,
    Manifest,
    Stage,
    artifact_key,
    content_digest,
    plain_json,
    read_manifest,
)
from tasks.code_closure import SourceTree
from tasks.content_digest import remember, sha256_files
from tasks.durable_files import sync_path, write_text
from tasks.lease import Lease
from tasks.measure import Cost, measured

Build = Callable[[Path], Mapping[str, Any]]

FOLDER_DIGITS = 16
"""Digits of a key that name its folder, and that people are shown."""

# Packages whose version may show in an output; recorded, not part of the key.
RECORDED_PACKAGES = (
    "datasketch",
    "deepspeed",
    "ftfy",
    "langdetect",
    "lm-eval",
    "megatron-core",
    "mtnlg",
    "numpy",
    "prefect",
    "pyarrow",
    "tokenizers",
    "torch",
    "transformers",
)


class StoreNotWritableError(ValueError):
    """The disk of the store is full, read-only or forbidden."""


class CodeChangedError(ValueError):
    """The code of a stage was edited while the stage ran."""


class OutputRefusedError(ValueError):
    """A build left something that cannot be an artifact."""


class ArtifactStore:
    """Finds artifacts by what they were made from, and builds those that are missing.

    Args:
        root: the store's folder; made when something is first built.
        sources: the code that stages are made of; by default the installed packages, as they are
            now. Edits made later do not change keys, since this process runs the code of now.
    """

    def __init__(self, root: Path, sources: SourceTree | None = None) -> None:
        self.root = root
        self.digest_cache = root / "digests.sqlite"
        self._sources = sources or SourceTree.installed()

    def key(
        self,
        stage: Stage,
        config: Mapping[str, Any],
        inputs: Mapping[str, Artifact],
        raw_inputs: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Return the key of the artifact that `stage` would make.

        Args:
            stage: the stage; its code is part of the key.
            config: resolved settings, of JSON types; their order does not count.
            inputs: artifacts by the name under which the stage reads them; their content counts.
            raw_inputs: content digests of files outside the store, by name.

        Raises:
            ValueError: `config` holds something that JSON cannot.
        """
        return artifact_key(
            stage.name,
            self._sources.digest(stage.module, stage.data),
            plain_json(config, "config"),
            {name: artifact.digest for name, artifact in inputs.items()},
            dict(raw_inputs),
        )

    def find(self, stage_name: str, key: str) -> Artifact | None:
        """Return the artifact of this key, checked, or None.

        Raises:
            ArtifactDamaged: it is there, but not as it was published.
        """
        folder = self._folder(stage_name, key)
        if not folder.exists():
            return None
        artifact = self._open(stage_name, folder)
        if artifact.key != key:
            raise ArtifactDamaged(
                stage_name, folder, [Fault(MANIFEST, f"key {artifact.key}", f"a search for {key}")]
            )
        faults = self._faults(artifact, self.digest_cache)
        if faults:
            raise ArtifactDamaged(stage_name, folder, faults)
        return artifact

    def build(
        self,
        stage: Stage,
        config: Mapping[str, Any],
        inputs: Mapping[str, Artifact],
        build: Build,
        *,
        raw_inputs: Mapping[str, str] = MappingProxyType({}),
        force: bool = False,
        on_wait: Callable[[str], None] | None = None,
    ) -> Artifact:
        """Return the artifact of these arguments, built if there is none.

        Args:
            stage: as for `key`.
            config: as for `key`.
            inputs: as for `key`.
            build: writes the output into the folder it is given and returns figures for a
                reader. The folder is empty, unless the stage is resumable and an earlier build of
                the same key did not end.
            raw_inputs: as for `key`.
            force: build even if there is an artifact, and from nothing.
            on_wait: told who builds the same key, when that must be waited for.

        Raises:
            ArtifactDamaged: there is an artifact, but not as it was published.
            OutputRefusedError: the output is empty or holds something else than files.
            CodeChangedError: the stage's code was edited meanwhile.
            StoreNotWritableError: the store's disk is full or read-only.
            LeaseLostError: another builder took over, because the lock folder was deleted or the
                file system dropped the lock.
            Exception: whatever `build` raises; nothing is published then.
        """
        key = self.key(stage, config, inputs, raw_inputs)
        if not force:
            # A fault is looked at again under the lease: a forced build may be replacing files.
            with suppress(ArtifactDamaged):
                found = self.find(stage.name, key)
                if found is not None:
                    return found
        with self._lease(stage.name, key, on_wait) as lease:
            self._repair(stage.name, key)
            if not force:
                found = self.find(stage.name, key)
                if found is not None:
                    return found
            with self._partial(stage, key, lease.holder.token, anew=force) as partial:
                resumed = any(partial.iterdir())
                try:
                    with measured() as cost:
                        returned = build(partial)
                finally:
                    # Whatever went wrong, a successor that took the folder away is the reason.
                    lease.confirm()
                figures = plain_json(returned, f"{stage.name}.figures")
                code_digest = self._unchanged_code(stage, key)
                with self._writing():
                    sealed_ns = time.time_ns()
                    files = self._seal(stage, partial)
                    manifest = Manifest(
                        stage=stage.name,
                        key=key,
                        digest=content_digest(files),
                        code_digest=code_digest,
                        config=plain_json(config, "config"),
                        inputs={name: _input_record(given) for name, given in inputs.items()},
                        raw_inputs=dict(raw_inputs),
                        files=files,
                        versions=dict(_versions()),
                        figures=figures,
                        **_cost_fields(cost),
                        created=datetime.now(UTC).isoformat(timespec="seconds"),
                        host=socket.gethostname(),
                    )
                    write_text(partial / MANIFEST, manifest.to_text())
                    folder = self._publish(stage.name, key, partial, lease)
            # Only now is the old one of no use, whatever happens.
            self._repair(stage.name, key)
            digests = {folder / file.path: file.sha256 for file in files}
            remember(digests, self.digest_cache, sealed_ns)
            artifact = self._open(stage.name, folder)
        return replace(artifact, origin="resumed" if resumed else "built")

    def has_partial(self, stage: Stage, key: str) -> bool:
        """Say whether a build of this key would go on from what an earlier one left."""
        return stage.resumable and any(
            any(partial.iterdir()) for partial in self._beside(stage.name, key, "partial")
        )

    def folders(self) -> list[Path]:
        """Return the folders of all finished artifacts, in order of stage and key."""
        return sorted(
            folder
            for folder in (self.root / "artifacts").glob("*/*")
            if folder.is_dir() and "." not in folder.name
        )

    def artifacts(self) -> list[Artifact]:
        """Return all finished artifacts; their files are not looked at.

        Raises:
            ArtifactDamaged: the manifest of one cannot be read. `verify` takes a folder for this.
        """
        return [self._open(folder.parent.name, folder) for folder in self.folders()]

    def verify(self, artifact: Artifact | Path) -> list[Fault]:
        """Read every file of an artifact, given as such or by its folder, and name what is wrong.

        Remembered digests are not believed here.
        """
        folder = artifact if isinstance(artifact, Path) else artifact.folder
        try:
            return self._faults(self._open(folder.parent.name, folder), cache=None)
        except ArtifactDamaged as error:
            return error.faults

    def _folder(self, stage_name: str, key: str) -> Path:
        return self.root / "artifacts" / stage_name / key[:FOLDER_DIGITS]

    def _beside(self, stage_name: str, key: str, suffix: str) -> list[Path]:
        folder = self._folder(stage_name, key)
        return sorted(folder.parent.glob(f"{folder.name}.*.{suffix}"))

    def _open(self, stage_name: str, folder: Path) -> Artifact:
        manifest = read_manifest(stage_name, folder)
        return Artifact(stage_name, manifest.key, manifest.digest, folder, manifest, "reused")

    def _faults(self, artifact: Artifact, cache: Path | None) -> list[Fault]:
        folder = artifact.folder
        recorded = {file.path: file for file in artifact.manifest.files}
        found = {name: status for name, status in _walk(folder) if name != MANIFEST}
        faults: list[Fault] = []
        to_hash: list[str] = []
        for name in sorted(recorded.keys() | found.keys()):
            if name not in found:
                faults.append(Fault(name, f"{recorded[name].size} bytes", "no such file"))
            elif name not in recorded:
                faults.append(Fault(name, "no such file", _describe(found[name])))
            elif not stat.S_ISREG(found[name].st_mode) or (
                found[name].st_size != recorded[name].size
            ):
                faults.append(Fault(name, f"{recorded[name].size} bytes", _describe(found[name])))
            else:
                to_hash.append(name)
        if faults:
            return faults
        digests = sha256_files((folder / name for name in to_hash), cache)
        for name in to_hash:
            if digests[folder / name] != recorded[name].sha256:
                faults.append(
                    Fault(
                        name, f"sha256 {recorded[name].sha256}", f"sha256 {digests[folder / name]}"
                    )
                )
        return faults

    def _lease(self, stage_name: str, key: str, on_wait: Callable[[str], None] | None) -> Lease:
        with self._writing():
            name = f"{stage_name}-{key[:FOLDER_DIGITS]}"
            return Lease.acquire(self.root / "locks", name, on_wait)

    def _repair(self, stage_name: str, key: str) -> None:
        """Finish, or take back, what a forced build began. Only under the lease."""
        folder = self._folder(stage_name, key)
        for old in self._beside(stage_name, key, "replaced"):
            if folder.exists():
                self._discard(old)
            else:
                old.rename(folder)
        for old in self._beside(stage_name, key, "discarded"):
            shutil.rmtree(old, ignore_errors=True)

    @staticmethod
    def _discard(path: Path) -> None:
        # Under its old name, a folder that is half deleted could be taken for what it was.
        discarded = path.rename(path.with_suffix(".discarded"))
        # What cannot be deleted now (open files on NFS) is deleted by the next builder.
        shutil.rmtree(discarded, ignore_errors=True)

    @contextmanager
    def _partial(self, stage: Stage, key: str, token: str, *, anew: bool) -> Iterator[Path]:
        """The folder to build in. When the body fails it is kept if the stage is resumable."""
        with self._writing():
            folder = self._folder(stage.name, key)
            partial = folder.with_name(f"{folder.name}.{token[:8]}.partial")
            folder.parent.mkdir(parents=True, exist_ok=True)
            left = self._beside(stage.name, key, "partial")
            # The latest is the furthest; there is more than one only after a lease was lost.
            left.sort(key=lambda path: path.stat().st_mtime_ns)
            kept = left.pop() if left and stage.resumable and not anew else None
            for path in left:
                self._discard(path)
            if kept is not None:
                kept.rename(partial)
                # Killed between manifest and rename: what is added now is not in that manifest.
                for manifest in partial.glob(f"{MANIFEST}*"):
                    manifest.unlink()
            else:
                partial.mkdir()
        try:
            yield partial
        except BaseException as error:
            if not stage.resumable:
                with suppress(FileNotFoundError):
                    self._discard(partial)
            elif partial.exists():
                error.add_note(f"What was built so far is kept in {partial}.")
            raise

    def _unchanged_code(self, stage: Stage, key: str) -> str:
        digest = self._sources.digest(stage.module, stage.data)
        edited = self._sources.drift(stage.module, stage.data, digest)
        if edited:
            kept = (
                "  What was built is kept: with the old code, the next run goes on from it."
                if stage.resumable
                else "  Run again to build with the new code."
            )
            raise CodeChangedError(
                f"{stage.name}: {', '.join(edited)} changed while the stage ran, so the output is "
                f"not known to be that of key {key[:FOLDER_DIGITS]} and is not published.\n{kept}"
            )
        return digest

    def _seal(self, stage: Stage, partial: Path) -> list[FileRecord]:
        """Flush all files to the disk and describe them."""
        files: dict[str, os.stat_result] = {}
        for name, status in _walk(partial):
            if not stat.S_ISREG(status.st_mode):
                raise OutputRefusedError(
                    f"{stage.name} wrote {name}, {_describe(status)}; an artifact holds files "
                    "alone, since what lies outside can change.\n  Write the content instead."
                )
            if name == MANIFEST:
                raise OutputRefusedError(
                    f"{stage.name} wrote {MANIFEST}, a name kept for the store"
                )
            try:
                name.encode()
            except UnicodeEncodeError:
                raise OutputRefusedError(
                    f"{stage.name} wrote {os.fsencode(name)!r}, a name that is no valid UTF-8"
                ) from None
            files[name] = status
        if not files:
            raise OutputRefusedError(f"{stage.name} wrote no file; an empty output is no result")
        for name in files:
            sync_path(partial / name)
        for folder in {(partial / name).parent for name in files} | {partial}:
            sync_path(folder)
        digests = sha256_files((partial / name for name in files), cache=None)
        return [
            FileRecord(path=name, size=files[name].st_size, sha256=digests[partial / name])
            for name in sorted(files)
        ]

    def _publish(self, stage_name: str, key: str, partial: Path, lease: Lease) -> Path:
        folder = self._folder(stage_name, key)
        with lease.fenced():
            if folder.exists():
                old = partial.with_suffix(".replaced")
                folder.rename(old)
            partial.rename(folder)
        sync_path(folder.parent)
        return folder

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cannot = (
                errno.ENOSPC,
                errno.EDQUOT,
                errno.EFBIG,
                errno.EROFS,
                errno.EACCES,
                errno.EPERM,
                errno.ENOTDIR,
            )
            if error.errno not in cannot:
                raise
            raise StoreNotWritableError(
                f"the artifact store {self.root} cannot be written: {error.strerror}"
                f" ({error.filename or 'no file named'}).\n"
                "  Free space on its disk, or name another folder with --root. Nothing was"
                " published; run again to go on."
            ) from error


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All below `folder` that is no folder, by path with forward slashes; links not followed."""
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in names + links:
            path = Path(parent) / name
            yield path.relative_to(folder).as_posix(), path.lstat()


def _describe(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "a pipe, socket or device"
    return f"{status.st_size} bytes"


def _input_record(artifact: Artifact) -> InputRecord:
    return InputRecord(stage=artifact.stage, key=artifact.key, digest=artifact.digest)


def _cost_fields(cost: Cost) -> dict[str, Any]:
    return {
        "wall_seconds": round(cost.wall_seconds, 3),
        "cpu_seconds": round(cost.cpu_seconds, 3),
        "peak_memory_bytes": cost.peak_memory_bytes,
    }


@functools.cache
def _versions() -> Mapping[str, str]:
    # Once a process: what it has loaded stays, whatever is installed meanwhile.
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return MappingProxyType(versions)
