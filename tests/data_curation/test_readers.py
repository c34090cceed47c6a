"""Each reader finds what it should, and sorts out what cannot be used, with place and reason."""

import gzip
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pydantic import TypeAdapter

from data_curation.config import Source
from data_curation.readers import Record, Rejection, faults, input_files, reader


def source(kind, **fields):
    return TypeAdapter(Source).validate_python({"name": "s", "reader": kind, **fields})


def read(kind, **fields):
    """All records and rejections of a source."""
    opened = reader(source(kind, **fields))
    found = [record for unit in opened.units() for record in opened.read(unit)]
    return (
        [record for record in found if isinstance(record, Record)],
        [record for record in found if isinstance(record, Rejection)],
    )


def json_lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


# What `path` may be.


@pytest.fixture
def tree(tmp_path):
    for name in ("b.txt", "sub/a.md", "sub/c.TXT", "skip.log", ".git/d.txt", ".e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_folder_is_searched_below_for_known_suffixes_in_order(tree):
    records, _ = read("text", path=str(tree))
    assert [record.text for record in records] == ["b.txt", "sub/a.md", "sub/c.TXT"]
    assert input_files(source("text", path=str(tree))) == [
        tree / "b.txt",
        tree / "sub" / "a.md",
        tree / "sub" / "c.TXT",
    ]


def test_a_glob_takes_what_it_matches_and_names_it_from_its_fixed_part(tree):
    records, _ = read("text", path=str(tree / "**" / "*.txt"))
    assert [record.locator for record in records] == ["b.txt"]
    records, _ = read("text", path=str(tree / "su?" / "*"))
    assert [record.locator for record in records] == ["sub/a.md", "sub/c.TXT"]


def test_a_file_is_taken_whatever_its_name(tree):
    records, _ = read("text", path=str(tree / "skip.log"))
    assert records == [Record("skip.log", "skip.log", "skip.log")]


@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
@pytest.mark.parametrize("path", ["nowhere", "empty", "no*thing"])
def test_nothing_found_is_an_error_that_names_the_path(tmp_path, kind, path):
    (tmp_path / "empty").mkdir()
    named = str(tmp_path / path)
    for ask in (input_files, lambda s: reader(s).units()):
        with pytest.raises(ValueError, match=r"exist|holds no file|matches no file") as error:
            ask(source(kind, path=named))
        assert named in str(error.value)
    assert named in faults(source(kind, path=named))[0]


def test_a_file_that_links_lead_to_by_several_ways_is_read_once(tmp_path):
    (tmp_path / "c" / "real").mkdir(parents=True)
    (tmp_path / "c" / "real" / "a.txt").write_text("text")
    (tmp_path / "c" / "loop").symlink_to(".")
    (tmp_path / "c" / "linked.txt").symlink_to("real/a.txt")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b.txt").write_text("more")
    (tmp_path / "c" / "elsewhere").symlink_to(tmp_path / "outside")
    for path in ("c", "c/**/*.txt"):
        files = reader(source("text", path=str(tmp_path / path))).files()
        assert [file.name for file in files] == ["elsewhere/b.txt", "linked.txt"], path


@pytest.mark.parametrize("path", ["c", "c/*.txt", "c/b.txt"])
@pytest.mark.parametrize("what", ["dangling", "itself", "pipe"])
def test_an_input_that_is_no_file_is_refused_by_name_not_passed_over(tmp_path, path, what):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.txt").write_text("text")
    bad = tmp_path / "c" / "b.txt"
    if what == "pipe":
        os.mkfifo(bad)
    else:
        bad.symlink_to("nowhere.txt" if what == "dangling" else "b.txt")
    (fault,) = reader(source("text", path=str(tmp_path / path))).faults()
    assert str(bad) in fault
    assert ("pipe" if what == "pipe" else "leads to no file") in fault


def test_a_name_that_is_not_utf8_is_spelled_out(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / os.fsdecode(b"c/\xfe.txt")).write_text("text")
    for path in ("c", "c/*.txt"):
        (record,), _ = read("text", path=str(tmp_path / path))
        assert (record.locator, record.text) == ("\\xfe.txt", "text")


def test_a_right_source_has_no_faults(tree):
    assert faults(source("text", path=str(tree))) == []
    assert faults(source("installed_documentation", packages=["stdlib", "pydantic"])) == []


# Text.


def test_text_that_is_none_is_rejected_at_its_byte(tmp_path):
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "nul.txt").write_bytes(b"ab\0c")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfgood")
    records, rejections = read("text", path=str(tmp_path))
    assert [record.text for record in records] == ["good"]
    assert [(r.file, r.offset) for r in rejections] == [("latin.txt", 3), ("nul.txt", 2)]


# JSON lines.


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.jsonl", bytes),
        ("a.json.gz", gzip.compress),
        ("a.jsonl.zst", zstandard.compress),
    ],
)
def test_json_lines_are_read_packed_or_not(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(json_lines("one", "two\u2028\x85 still two", "three")))
    records, rejections = read("jsonl", path=str(tmp_path))
    assert [record.text for record in records] == ["one", "two\u2028\x85 still two", "three"]
    assert [record.locator for record in records] == [f"{name}:{line}" for line in (1, 2, 3)]
    assert rejections == []


@pytest.mark.parametrize(
    ("name", "pack"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstandard.compress)]
)
def test_packed_files_of_several_members_are_read_to_the_end(tmp_path, name, pack):
    cut = json_lines("one", "two", "three")
    # The second member begins within a line.
    (tmp_path / name).write_bytes(pack(cut[:20]) + pack(cut[20:]))
    records, rejections = read("jsonl", path=str(tmp_path))
    assert [record.text for record in records] == ["one", "two", "three"]
    assert rejections == []


@pytest.mark.parametrize(
    ("name", "pack"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstandard.compress)]
)
def test_a_cut_file_keeps_what_is_before_the_cut_and_says_where_it_ends(tmp_path, name, pack):
    whole = pack(json_lines("one", "two"))
    lost = pack(json_lines(*(str(number) * 50 for number in range(99))))
    (tmp_path / name).write_bytes(whole + lost[: len(lost) // 2])
    records, rejections = read("jsonl", path=str(tmp_path))
    assert [record.text for record in records][:2] == ["one", "two"]
    (rejection,) = rejections
    assert rejection.offset == len(records) + 1
    assert rejection.reason.startswith("unreadable from here on")


def test_a_gzip_file_with_a_wrong_checksum_is_not_taken_for_whole(tmp_path):
    packed = bytearray(gzip.compress(json_lines("one", "two")))
    packed[-6] ^= 1
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    records, rejections = read("jsonl", path=str(tmp_path))
    assert [record.text for record in records] == ["one", "two"]
    assert "CRC" in rejections[0].reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "not JSON"),
        (b'{"text": "\xff"}', "not UTF-8: invalid start byte at byte 10"),
        (rb'{"text": "\ud800"}', "not JSON"),
        (b"[1]", "not a JSON object but an array"),
        (b'{"body": "a", "n": 1}', "no field 'text' (fields: body, n)"),
        (b'{"text": null}', "field 'text' is no string but null"),
        (b'{"text": 3}', "field 'text' is no string but a number"),
    ],
)
def test_a_bad_line_is_rejected_by_number_and_the_rest_is_kept(tmp_path, line, reason):
    content = json_lines("one") + b"\n" + line + b"\n" + json_lines("two").rstrip()
    (tmp_path / "a.jsonl").write_bytes(content)
    records, rejections = read("jsonl", path=str(tmp_path / "a.jsonl"))
    assert [(record.text, record.locator) for record in records] == [
        ("one", "a.jsonl:1"),
        ("two", "a.jsonl:4"),
    ]
    (rejection,) = rejections
    assert (rejection.file, rejection.offset) == ("a.jsonl", 3)
    assert rejection.reason.startswith(reason)


def test_lines_longer_than_a_chunk_are_whole(tmp_path):
    texts = ["a" * 700_000, "b", "c" * 300_000]
    (tmp_path / "a.jsonl").write_bytes(json_lines(*texts))
    records, _ = read("jsonl", path=str(tmp_path))
    assert [record.text for record in records] == texts


def test_an_id_field_names_documents(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"t": "one", "url": "u1"}\n{"t": "two", "url": 7}\n'
        '{"t": "three"}\n{"t": "x", "url": null}\n'
    )
    records, rejections = read("jsonl", path=str(tmp_path), text_field="t", id_field="url")
    assert records == [Record("u1", "u1", "one"), Record("7", "7", "two")]
    assert [r.offset for r in rejections] == [3, 4]


# Parquet.


def write_parquet(path, texts, kind=None, rows_a_group=2):
    table = pa.table({"other": range(len(texts)), "text": pa.array(texts, kind)})
    pq.write_table(table, path, row_group_size=rows_a_group)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
)
def test_parquet_is_read_by_row_groups_whatever_the_kind_of_string(tmp_path, kind):
    texts = ["a", "é", None, "d", "e"]
    write_parquet(tmp_path / "p.parquet", pa.array(texts, pa.string()).cast(kind))
    assert len(reader(source("parquet", path=str(tmp_path))).units()) == 3
    records, rejections = read("parquet", path=str(tmp_path))
    assert [(r.locator, r.text) for r in records] == [
        ("p.parquet:0", "a"),
        ("p.parquet:1", "é"),
        ("p.parquet:3", "d"),
        ("p.parquet:4", "e"),
    ]
    assert rejections == [Rejection("p.parquet", 2, "column 'text' is null")]


def test_a_parquet_text_that_is_not_utf8_is_rejected_alone(tmp_path):
    broken = pa.array([b"a", b"\xff", b"c"], pa.binary()).view(pa.string())
    write_parquet(tmp_path / "p.parquet", broken, rows_a_group=3)
    records, rejections = read("parquet", path=str(tmp_path))
    assert [record.text for record in records] == ["a", "c"]
    assert [(r.offset, r.reason[:9]) for r in rejections] == [(1, "not UTF-8")]


def test_parquet_ids_come_from_their_column_wherever_it_stands(tmp_path):
    write_parquet(tmp_path / "p.parquet", ["a", "b"])
    records, _ = read("parquet", path=str(tmp_path), id_field="other")
    assert [(record.locator, record.text) for record in records] == [("0", "a"), ("1", "b")]


@pytest.mark.parametrize(
    ("column", "message"),
    [("body", "has no column 'body'. It has: other, text"), ("other", "holds int64, no strings")],
)
def test_a_wrong_parquet_column_is_refused_before_any_work(tmp_path, column, message):
    write_parquet(tmp_path / "p.parquet", ["a"])
    wrong = source("parquet", path=str(tmp_path), text_field=column)
    assert message in faults(wrong)[0]
    with pytest.raises(ValueError, match=message):
        reader(wrong).units()


def test_a_column_that_stands_twice_is_refused(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    (fault,) = reader(source("parquet", path=str(tmp_path))).faults()
    assert "several columns 'text'" in fault


def test_a_file_that_is_no_parquet_is_refused_by_name(tmp_path):
    (tmp_path / "p.parquet").write_bytes(b"PAR1 not")
    assert (
        "p.parquet is not a readable Parquet file"
        in faults(source("parquet", path=str(tmp_path)))[0]
    )


# Installed documentation.


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that must not be imported."""
    files = {
        "__init__.py": '"""The package."""\nraise RuntimeError("imported")\n',
        "a.py": '''
class A:
    """A class.

    More:
        Indented.
    """

    @property
    def size(self):
        """The size."""

    @size.setter
    def size(self, value):
        """Set the size."""

    async def go(self):
        def inner():
            """Inside."""

if True:
    def made():
        """One."""
else:
    def made():
        """Other."""

try:
    pass
except ImportError:
    def fallback():
        \'\'\'Fallback.\'\'\'

text = """No docstring."""
''',
        "broken.py": '"""Docs."""\nprint "python 2"\n',
        "single.py": "def f():\n    'One line.'\n",
        "sub/__init__.py": '"""Sub."""\n',
        "sub/notes.rst": "Notes.",
        "requirements-dev.txt": "numpy",
        "data.csv": "1,2",
        "tests/test_a.py": '"""Test."""',
        "_vendor/other.py": '"""Other."""',
        "conftest.py": '"""Conftest."""',
    }
    for name, text in files.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "mine"


def test_docstrings_are_located_by_file_and_name(package):
    records, rejections = read("installed_documentation", packages=[package])
    assert [(record.locator, record.text) for record in records] == [
        ("mine/__init__.py", "The package."),
        ("mine/a.py#A", "A class.\n\nMore:\n    Indented."),
        ("mine/a.py#A.size", "The size."),
        ("mine/a.py#A.size@14", "Set the size."),
        ("mine/a.py#A.go.inner", "Inside."),
        ("mine/a.py#made", "One."),
        ("mine/a.py#made@25", "Other."),
        ("mine/a.py#fallback", "Fallback."),
        ("mine/sub/__init__.py", "Sub."),
        ("mine/sub/notes.rst", "Notes."),
    ]
    assert all(record.group == record.locator.split("#")[0] for record in records)
    assert [(r.file, r.offset) for r in rejections] == [("mine/broken.py", 2)]
    assert "mine" not in sys.modules


def test_a_subpackage_is_found_without_importing_its_parent(package):
    records, _ = read("installed_documentation", packages=["mine.sub"])
    assert [record.locator for record in records] == ["mine/sub/__init__.py", "mine/sub/notes.rst"]
    assert "mine" not in sys.modules


def test_packages_that_overlap_bring_each_file_once(package):
    names = [p.name for p in input_files(source("installed_documentation", packages=["mine"]))]
    both = source("installed_documentation", packages=["mine", "mine.sub"])
    assert [p.name for p in input_files(both)] == names


@pytest.mark.parametrize("name", ["not_a_package", "json.nothing", "not.a.package", ""])
def test_a_package_that_is_not_installed_is_refused_by_name(name):
    wrong = source("installed_documentation", packages=["json", name])
    assert faults(wrong) == [
        f"package {name!r} is not installed. Install it (by import name: {name}), or leave it out."
    ]
    with pytest.raises(ValueError, match="is not installed"):
        input_files(wrong)


def test_a_compiled_module_is_refused_by_name():
    assert (
        "has no Python file" in faults(source("installed_documentation", packages=["_thread"]))[0]
    )


def test_the_standard_library_is_itself_alone():
    records, _ = read("installed_documentation", packages=["json"])
    whole = reader(source("installed_documentation", packages=["stdlib"]))
    names = [file.name for file in whole.files()]
    assert "stdlib/json/decoder.py" in names
    assert not [n for n in names if "packages" in n or "/test/" in n or "idlelib" in n]
    (unit,) = [unit for unit in whole.units() if unit.file.name == "stdlib/json/decoder.py"]
    located = {record.locator: record.text for record in whole.read(unit)}
    assert (
        located["stdlib/json/decoder.py#JSONDecoder"]
        == json.JSONDecoder.__doc__.replace("\n    ", "\n").rstrip()
    )
    assert len(records) > 5
