from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tasks.artifacts import Artifact, ArtifactDamaged, Stage
from tasks.code_closure import SourceTree
from tasks.lease import LeaseLostError
from tasks.store import ArtifactStore, CodeChangedError, OutputRefusedError, StoreNotWritableError

CURATE = Stage("curate", "data_curation.curate")
TRAIN = Stage("train", "training.worker", resumable=True)


@pytest.fixture
def store(tmp_path, sources) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store", sources)


class Writer:
    """A build that writes given files and counts how often it is called."""

    def __init__(self, **texts: str) -> None:
        self.texts = {name.replace("__", "/"): text for name, text in texts.items()}
        self.calls = 0

    def __call__(self, out: Path) -> dict[str, int | float | str]:
        self.calls += 1
        for name, text in self.texts.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
        return {"files": len(self.texts)}


def built(store: ArtifactStore, stage: Stage = CURATE, text: str = "data", **config) -> Artifact:
    return store.build(stage, config, {}, Writer(part__0=text, part__1="more"))


def names_in(store: ArtifactStore) -> list[str]:
    return sorted(path.name for path in (store.root / "artifacts").glob("*/*"))


def no_build(out: Path) -> dict[str, int]:
    raise AssertionError("nothing should be built")


def test_the_second_time_nothing_is_built(store):
    first = built(store)
    again = store.build(CURATE, {}, {}, no_build)
    assert (first.origin, again.origin) == ("built", "reused")
    assert (again.key, again.digest, again.folder) == (first.key, first.digest, first.folder)
    assert again.manifest == first.manifest
    assert store.find("curate", first.key) == again
    assert store.find("curate", "0" * 64) is None
    assert [artifact.key for artifact in store.artifacts()] == [first.key]
    assert names_in(store) == [first.key[:16]]


def test_the_manifest_says_all(store, tmp_path):
    given = built(store)
    artifact = store.build(
        TRAIN,
        {"lr": 1e-3, "betas": (0.9, 0.95)},
        {"curate": given},
        Writer(model="weights"),
        raw_inputs={"vocabulary": "ab" * 32},
    )
    manifest = json.loads((artifact.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"] == {"lr": 1e-3, "betas": [0.9, 0.95]}
    assert manifest["inputs"] == {
        "curate": {"stage": "curate", "key": given.key, "digest": given.digest}
    }
    assert manifest["raw_inputs"] == {"vocabulary": "ab" * 32}
    (file,) = manifest["files"]
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert file == {"path": "model", "size": 7, "sha256": sha256}
    assert manifest["figures"] == {"files": 1}
    assert manifest["peak_memory_bytes"] > 1_000_000
    assert 0 <= manifest["wall_seconds"] < 10
    assert {"python", "torch", "numpy"} <= manifest["versions"].keys()
    assert manifest["created"].endswith("+00:00")


def test_the_key_sees_config_inputs_raw_inputs_stage_and_code_but_no_order(store, source_root):
    given, other = built(store, x=1), built(store, text="other", x=2)
    keys = [
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 4}}, {}),
        store.key(TRAIN, {"a": 1, "b": {"c": 2, "d": 3}}, {}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {"in": given}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {"in": other}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {"also": given}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {}, {"raw": "00"}),
        store.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {}, {"raw": "01"}),
    ]
    assert len(set(keys)) == len(keys)
    assert store.key(CURATE, {"b": {"d": 3, "c": 2}, "a": 1}, {}) == keys[0]
    (source_root / "data_curation/letters.py").write_text("ALL = 'xyz'\n")
    edited = ArtifactStore(store.root, SourceTree(source_root))
    assert edited.key(CURATE, {"a": 1, "b": {"c": 2, "d": 3}}, {}) != keys[0]
    assert edited.key(TRAIN, {"a": 1, "b": {"c": 2, "d": 3}}, {}) == keys[2]


def test_a_stage_rebuilt_with_equal_output_rebuilds_nothing_after_it(store):
    one, two = built(store, seed=1), built(store, seed=2)
    assert one.key != two.key
    store.build(TRAIN, {}, {"curate": one}, Writer(model="m"))
    assert store.build(TRAIN, {}, {"curate": two}, no_build).origin == "reused"


@pytest.mark.parametrize("config", [{"a": float("nan")}, {"a": {1: 2}}, {"a": [Path("x")]}])
def test_settings_that_are_no_json_are_refused_by_name(store, config):
    with pytest.raises(ValueError, match=r"config\.a"):
        store.key(CURATE, config, {})


def test_numbers_of_numpy_are_figures_and_what_is_no_number_is_refused(store):
    def build(out: Path) -> dict[str, object]:
        (out / "a").write_text("a")
        return {"n": np.int64(3), "loss": np.float32(0.5)}

    assert store.build(CURATE, {}, {}, build).manifest.figures == {"n": 3, "loss": 0.5}

    def diverged(out: Path) -> dict[str, float]:
        (out / "a").write_text("a")
        return {"loss": float("nan")}

    with pytest.raises(ValueError, match=r"train\.figures\.loss is nan"):
        store.build(TRAIN, {}, {}, diverged)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_bytes(content)
    os.utime(file, ns=times)


def replace_by_link(file: Path) -> None:
    copy = file.parents[4] / "copy"
    file.rename(copy)
    file.symlink_to(copy)


DAMAGE = {
    "flipped": (flip, ("sha256 3a6eb0790f39ac87", "sha256 ")),
    "truncated": (lambda file: os.truncate(file, 3), ("4 bytes", "3 bytes")),
    "grown": (lambda file: os.truncate(file, 9), ("4 bytes", "9 bytes")),
    "missing": (lambda file: file.unlink(), ("4 bytes", "no such file")),
    "linked": (replace_by_link, ("4 bytes", "a symbolic link")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_by_name_with_both_values_and_the_remedy(store, damage):
    artifact = built(store)
    store.find("curate", artifact.key)
    harm, (recorded, found) = DAMAGE[damage]
    harm(artifact.folder / "part" / "0")
    (fault,) = store.verify(artifact)
    assert fault.file == "part/0"
    assert fault.recorded.startswith(recorded) and fault.found.startswith(found)
    with pytest.raises(ArtifactDamaged) as refused:
        store.build(CURATE, {}, {}, no_build)
    message = str(refused.value)
    assert str(artifact.folder) in message and str(fault) in message
    assert "--force curate" in message
    repaired = store.build(CURATE, {}, {}, Writer(part__0="data", part__1="more"), force=True)
    assert repaired.digest == artifact.digest
    assert store.verify(repaired) == []
    assert names_in(store) == [artifact.key[:16]]


def test_a_file_too_many_is_refused_by_name(store):
    artifact = built(store)
    (artifact.folder / "part" / "2").write_text("x")
    (fault,) = store.verify(artifact)
    assert str(fault) == "part/2: recorded no such file, found 1 bytes"
    with pytest.raises(ArtifactDamaged, match="part/2"):
        store.find("curate", artifact.key)


def test_no_byte_of_a_manifest_can_change_unseen(store):
    artifact = built(store)
    file = artifact.folder / "manifest.json"
    whole = file.read_bytes()
    for position in range(0, len(whole), 7):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        (fault,) = store.verify(artifact.folder)
        assert fault.file == "manifest.json"
    file.write_bytes(whole[:-20])
    with pytest.raises(ArtifactDamaged, match=r"manifest\.json"):
        store.find("curate", artifact.key)
    file.unlink()
    with pytest.raises(ArtifactDamaged, match=r"manifest\.json.*no such file"):
        store.build(CURATE, {}, {}, no_build)
    file.write_bytes(whole)
    assert store.verify(artifact.folder) == []


def test_unchanged_files_are_hashed_once_and_verify_hashes_all(store, monkeypatch):
    artifact = built(store)
    read: list[str] = []
    from tasks import content_digest

    real = content_digest.sha256_file
    monkeypatch.setattr(content_digest, "SETTLING_NS", -3_600_000_000_000)
    monkeypatch.setattr(
        content_digest, "sha256_file", lambda path: read.append(path.name) or real(path)
    )
    store.find("curate", artifact.key)
    assert sorted(read) == ["0", "1"]
    store.find("curate", artifact.key)
    assert len(read) == 2
    store.verify(artifact)
    assert len(read) == 4


def test_two_keys_in_one_folder_are_told_apart(store):
    artifact = built(store)
    twin = artifact.key[:16] + "f" * 48
    with pytest.raises(ArtifactDamaged, match=f"a search for {twin}"):
        store.find("curate", twin)


def test_nested_and_non_ascii_names_are_kept(store):
    artifact = store.build(
        CURATE, {}, {}, Writer(**{"ä__ж__漢 字": "1", "a b__🙂": "2", "part-1.idx": "3"})
    )
    paths = [file.path for file in artifact.manifest.files]
    assert paths == ["a b/🙂", "part-1.idx", "ä/ж/漢 字"]
    assert store.verify(artifact) == []


def nothing(out: Path) -> None:
    (out / "empty folder").mkdir()


def link(out: Path) -> None:
    (out / "a").write_text("a")
    (out / "link").symlink_to("a")


def folder_link(out: Path) -> None:
    (out / "a").write_text("a")
    (out / "link").symlink_to("/usr")


def pipe(out: Path) -> None:
    (out / "link").parent.mkdir(exist_ok=True)
    os.mkfifo(out / "link")


def manifest(out: Path) -> None:
    (out / "manifest.json").write_text("{}")


def name_of_bytes(out: Path) -> None:
    (out / os.fsdecode(b"\xff")).write_text("a")


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (nothing, "curate wrote no file"),
        (link, "curate wrote link, a symbolic link"),
        (folder_link, "curate wrote link, a symbolic link"),
        (pipe, "curate wrote link, a pipe"),
        (manifest, r"curate wrote manifest\.json"),
        (name_of_bytes, "no valid UTF-8"),
    ],
)
def test_an_output_that_cannot_be_kept_is_refused(store, leave, words):
    def build(out: Path) -> dict[str, int]:
        leave(out)
        return {}

    with pytest.raises(OutputRefusedError, match=words):
        store.build(CURATE, {}, {}, build)
    assert store.folders() == []
    assert names_in(store) == []


def half(out: Path) -> dict[str, int]:
    (out / "half").write_text("half")
    raise RuntimeError("out of luck")


def test_a_failed_build_publishes_nothing_and_leaves_nothing(store):
    with pytest.raises(RuntimeError, match="out of luck"):
        store.build(CURATE, {}, {}, half)
    assert names_in(store) == []
    assert built(store).origin == "built"


def test_a_failed_resumable_build_goes_on_from_what_it_left(store):
    key = store.key(TRAIN, {}, {})
    assert not store.has_partial(TRAIN, key)
    with pytest.raises(RuntimeError):
        store.build(TRAIN, {}, {}, half)
    assert store.folders() == []
    assert store.has_partial(TRAIN, key)

    def rest(out: Path) -> dict[str, int]:
        assert (out / "half").read_text() == "half"
        (out / "rest").write_text("rest")
        return {}

    artifact = store.build(TRAIN, {}, {}, rest)
    assert artifact.origin == "resumed"
    assert [file.path for file in artifact.manifest.files] == ["half", "rest"]
    assert names_in(store) == [artifact.key[:16]]
    assert not store.has_partial(TRAIN, key)
    assert store.build(TRAIN, {}, {}, no_build).origin == "reused"


def test_force_builds_from_nothing_and_a_failure_leaves_the_old_one(store):
    old = built(store, TRAIN)
    with pytest.raises(RuntimeError):
        store.build(TRAIN, {}, {}, half, force=True)
    assert store.find("train", old.key) is not None
    new = store.build(TRAIN, {}, {}, Writer(other="x"), force=True)
    assert (new.origin, new.key) == ("built", old.key)
    assert [file.path for file in new.manifest.files] == ["other"]
    assert names_in(store) == [old.key[:16]]


def test_code_edited_during_a_build_is_not_published_under_the_old_key(store, source_root):
    def build(out: Path) -> dict[str, int]:
        (out / "a").write_text("a")
        (source_root / "data_curation/letters.py").write_text("ALL = 'x'\n")
        return {}

    with pytest.raises(CodeChangedError, match=r"curate: data_curation\.letters changed"):
        store.build(CURATE, {}, {}, build)
    assert store.folders() == []
    assert built(store, TRAIN).origin == "built"


def test_a_builder_that_lost_its_lease_cannot_publish(store):
    successor: list[Artifact] = []

    def slow(out: Path) -> dict[str, int]:
        (out / "part").mkdir()
        (out / "part" / "0").write_text("from the loser")
        for lock in (store.root / "locks").glob("curate-*"):
            lock.unlink()  # as if a network file system forgot it
        successor.append(built(store))
        return {}

    with pytest.raises(LeaseLostError, match="not published"):
        store.build(CURATE, {}, {}, slow)
    assert store.find("curate", successor[0].key).digest == successor[0].digest
    assert (successor[0].folder / "part" / "0").read_text() == "data"
    assert names_in(store) == [successor[0].key[:16]]


def test_a_builder_that_lost_its_lease_to_one_at_work_cannot_publish(store):
    def loser(out: Path) -> dict[str, int]:
        (out / "0").write_text("from the loser")
        for lock in (store.root / "locks").glob("curate-*"):
            lock.unlink()
        thread.start()
        assert at_work.wait(10)
        return {}

    def winner(out: Path) -> dict[str, int]:
        at_work.set()
        assert lost.wait(10)
        (out / "0").write_text("from the winner")
        return {}

    at_work, lost = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: store.build(CURATE, {}, {}, winner))
    with pytest.raises(LeaseLostError, match=r"now it is held by process"):
        store.build(CURATE, {}, {}, loser)
    lost.set()
    thread.join(10)
    artifact = store.build(CURATE, {}, {}, no_build)
    assert (artifact.folder / "0").read_text() == "from the winner"
    assert names_in(store) == [artifact.key[:16]]


def test_concurrent_forced_builds_each_publish_whole(store):
    results: list[Artifact] = []

    def force(text: str) -> None:
        def build(out: Path) -> dict[str, int]:
            (out / "a").write_text(text)
            time.sleep(0.02)
            (out / "b").write_text(text)
            return {}

        results.append(store.build(CURATE, {}, {}, build, force=True))

    threads = [threading.Thread(target=force, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    (last,) = store.artifacts()
    assert store.verify(last) == []
    assert (last.folder / "a").read_text() == (last.folder / "b").read_text()
    assert names_in(store) == [last.key[:16]]


def with_file_size_limit(store: ArtifactStore, limit: int, size: int) -> str:
    """Build in a child that cannot write files longer than `limit`; return what it says."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from tasks.artifacts import Stage\n"
        "from tasks.code_closure import SourceTree\n"
        "from tasks.store import ArtifactStore\n"
        "root, sources, limit, size = sys.argv[1:]\n"
        "store = ArtifactStore(Path(root), SourceTree(Path(sources)))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), -1))\n"
        "try:\n"
        "    store.build(Stage('curate', 'data_curation.curate'), {}, {},\n"
        "        lambda out: {'n': (out / 'a').write_bytes(b'x' * int(size))})\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    arguments = [str(store.root), str(store._sources.root), str(limit), str(size)]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_a_disk_too_full_for_the_output_or_the_manifest_is_said_and_nothing_published(store):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    assert "File too large" in with_file_size_limit(store, limit=300, size=1000)
    said = with_file_size_limit(store, limit=300, size=100)
    assert said.startswith("StoreNotWritableError the artifact store")
    assert "File too large" in said and "Free space" in said
    assert store.folders() == []
    assert built(store).origin == "built"
    assert len(names_in(store)) == 1


def test_a_store_that_cannot_be_written_is_named(tmp_path, sources):
    (tmp_path / "file").write_text("in the way")
    root = tmp_path / "file" / "store"
    with pytest.raises(StoreNotWritableError, match=f"{root} cannot be written: Not a directory"):
        built(ArtifactStore(root, sources))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_named(tmp_path, sources):
    root = tmp_path / "store"
    root.mkdir(mode=0o555)
    with pytest.raises(StoreNotWritableError, match=f"{root} cannot be written: Permission denied"):
        built(ArtifactStore(root, sources))
