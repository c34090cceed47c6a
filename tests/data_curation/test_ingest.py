"""Every record of every source becomes a document or a line of quarantine, always the same way."""

import gzip
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

import data_curation.ingest
from data_curation.config import Source
from data_curation.documents import document_id, parts, read_documents
from data_curation.ingest import ingest

SOURCES = TypeAdapter(list[Source])


@pytest.fixture
def corpus(tmp_path):
    """Two sources with good and bad records in several files."""
    folder = tmp_path / "corpus"
    (folder / "texts" / "sub").mkdir(parents=True)
    for number in range(5):
        (folder / "texts" / f"{number}.txt").write_text(f"Text {number}, naïve.\n")
    (folder / "texts" / "sub" / "bad.txt").write_bytes(b"\0")
    lines = [json.dumps({"text": f"Line {number}"}) for number in range(20)]
    lines[7] = "broken"
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


def sources(corpus):
    return SOURCES.validate_python(
        [
            {"name": "lines", "reader": "jsonl", "path": str(corpus / "lines.jsonl.gz")},
            {"name": "texts", "reader": "text", "path": str(corpus / "texts")},
        ]
    )


def run(listed, out, executor):
    out.mkdir()
    return ingest(listed, out, executor=executor, progress=lambda done, total, note: None)


def written(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_documents_keep_the_order_of_sources_files_and_records(corpus, tmp_path, thread):
    figures = run(sources(corpus), tmp_path / "out", thread)
    documents = list(read_documents(parts(tmp_path / "out" / "documents")))
    assert [document.text for document in documents] == [
        f"Line {number}" for number in range(20) if number != 7
    ] + [f"Text {number}, naïve.\n" for number in range(5)]
    last = documents[-1]
    assert (last.source, last.group, last.locator) == ("texts", "4.txt", "4.txt")
    assert last.id == document_id("texts", "4.txt", last.text.encode())
    num_bytes = sum(len(document.text.encode()) for document in documents)
    assert figures == {
        "sources": 2,
        "files": 7,
        "documents": 24,
        "bytes": num_bytes,
        "quarantined": 2,
    }


def test_quarantine_and_summary_name_every_record_that_was_left_out(corpus, tmp_path, thread):
    run(sources(corpus), tmp_path / "out", thread)
    lines = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["source"], row["file"], row["offset"]) for row in rows] == [
        ("lines", "lines.jsonl.gz", 8),
        ("texts", "sub/bad.txt", 0),
    ]
    assert all(row["reason"] for row in rows)
    summary = json.loads((tmp_path / "out" / "sources.json").read_text())
    assert summary["lines"]["documents"] == 19
    assert summary["texts"] == {"files": 6, "documents": 5, "bytes": 80, "quarantined": 1}


def test_workers_do_not_change_a_byte(corpus, tmp_path, thread):
    listed = [
        *sources(corpus),
        *SOURCES.validate_python(
            [{"name": "docs", "reader": "installed_documentation", "packages": ["email", "typer"]}]
        ),
    ]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as two:
        run(listed, tmp_path / "two", two)
    run(listed, tmp_path / "one", thread)
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert len(written(tmp_path / "one")) > 4


def test_batches_change_the_parts_but_no_document(corpus, tmp_path, thread, monkeypatch):
    run(sources(corpus), tmp_path / "one", thread)
    monkeypatch.setattr(data_curation.ingest, "MIN_BATCH_BYTES", 1)
    run(sources(corpus), tmp_path / "many", thread)
    one, many = (parts(tmp_path / name / "documents") for name in ("one", "many"))
    assert len(many) > len(one)
    assert [path.name for path in many] == [f"part-{n:05d}.parquet" for n in range(len(many))]
    assert list(read_documents(one)) == list(read_documents(many))


def test_a_corpus_that_moves_keeps_its_ids(corpus, tmp_path, thread):
    run(sources(corpus), tmp_path / "before", thread)
    moved = corpus.rename(tmp_path / "elsewhere")
    run(sources(moved), tmp_path / "after", thread)
    assert written(tmp_path / "before") == written(tmp_path / "after")


def test_a_docstring_with_a_lone_surrogate_is_quarantined(tmp_path, thread, monkeypatch):
    (tmp_path / "odd.py").write_text('"""Odd: \\ud800"""\ndef f():\n    """Even."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = SOURCES.validate_python(
        [{"name": "odd", "reader": "installed_documentation", "packages": ["odd"]}]
    )
    assert run(listed, tmp_path / "out", thread)["documents"] == 1
    row = json.loads((tmp_path / "out" / "quarantine.jsonl").read_text())
    assert row["reason"] == "odd.py holds a lone surrogate at character 5"


def test_a_source_without_any_document_is_refused_with_the_first_reason(tmp_path, thread):
    (tmp_path / "a.jsonl").write_text('{"body": "text"}\n')
    listed = SOURCES.validate_python(
        [{"name": "web", "reader": "jsonl", "path": str(tmp_path / "a.jsonl")}]
    )
    with pytest.raises(ValueError, match=r"source web: .* no field 'text' \(fields: body\)"):
        run(listed, tmp_path / "out", thread)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_source_of_empty_files_is_refused(tmp_path, thread, name):
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / name)
    else:
        (tmp_path / name).touch()
    kind = "parquet" if name == "a.parquet" else "jsonl"
    listed = [{"name": "mine", "reader": kind, "path": str(tmp_path / name)}]
    with pytest.raises(ValueError, match=r"source mine: no document in its . files\. All"):
        run(SOURCES.validate_python(listed), tmp_path / "out", thread)


def test_two_sources_of_one_name_are_refused(corpus, tmp_path, thread):
    listed = [source.model_copy(update={"name": "same"}) for source in sources(corpus)]
    with pytest.raises(ValueError, match="same, same"):
        run(listed, tmp_path / "out", thread)


def test_progress_ends_at_all_input_bytes(corpus, tmp_path, thread):
    calls = []
    (tmp_path / "out").mkdir()
    ingest(
        sources(corpus),
        tmp_path / "out",
        executor=thread,
        progress=lambda done, total, note: calls.append((done, total)),
    )
    size = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
    assert calls[-1] == (size, size)
    assert calls == sorted(calls)
