"""What curation keeps, what it drops and why, and that the books balance."""

import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import data_curation.curate
import data_curation.in_order
import data_curation.sorted_parts
from data_curation.config import CurationConfig
from data_curation.decisions import RULES
from data_curation.held_out import is_held_out

GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund, und niemand hat ihn gesehen. "


@pytest.fixture
def many(english, document):
    """Enough English documents that both splits hold some."""
    return [document(english(number), group=f"file{number}") for number in range(20)]


def written(folder: Path):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def check_books(documents, curated):
    """Every document is kept once or dropped once, and the funnel says the same."""
    dropped = [row["id"] for row in curated.decisions]
    kept = [document.id for document in curated.kept]
    assert Counter(dropped + kept) == Counter(document.id for document in documents)
    assert curated.funnel["rules"] == list(RULES)
    for source, counts in [*curated.funnel["sources"].items(), ("total", curated.funnel["total"])]:
        rows = [r for r in curated.decisions if source in (r["source"], "total")]
        texts = [d for d in documents if source in (d.source, "total")]
        assert (
            counts["in"] == sum(counts["dropped"].values()) + counts["train"] + counts["held_out"]
        )
        assert counts["in"] == len(texts)
        assert counts["bytes_in"] == sum(len(d.text.encode()) for d in texts)
        assert counts["dropped"] == {
            rule: sum(row["rule"] == rule for row in rows) for rule in RULES
        }
        for split in ("train", "held_out"):
            in_split = [d for d in getattr(curated, split) if source in (d.source, "total")]
            assert counts[split] == len(in_split)
        in_all = [d for d in curated.kept if source in (d.source, "total")]
        assert counts["bytes_kept"] == sum(len(d.text.encode()) for d in in_all)


# Each rule.


def test_texts_are_cleaned_and_measured_after_it(run_curate, document, many):
    odd = document(
        "It\u00e2\u20ac\u2122s the best of all the things that we have seen", group="file0"
    )
    short = document("&amp;" * 19, group="file0")
    curated = run_curate([*many, odd, short])
    (found,) = [d for d in curated.kept if d.id == odd.id]
    assert found.text.startswith("It's the best")
    assert found.locator == odd.locator
    row = curated.decision("too_short")
    assert (row["id"], row["value"], row["threshold"]) == (short.id, 19, 20)


def test_lengths_count_characters_and_their_bounds_belong_to_them(run_curate, document, many):
    texts = ["ä" * 19, "the word is äöüß end"[:20], many[0].text + "s" * 4000]
    short, edge, long = (document(text, group="x") for text in texts)
    rules = {"length": {"min_characters": 20, "max_characters": 4000}}
    curated = run_curate([*many, short, edge, long], language={"keep": ["en", "de"]}, **rules)
    assert curated.decision("too_short")["id"] == short.id
    row = curated.decision("too_long")
    assert (row["id"], row["value"], row["threshold"]) == (long.id, len(long.text), 4000)
    assert edge.id not in [row["id"] for row in curated.decisions if row["rule"][:3] == "too"]


def test_of_equal_texts_the_first_source_then_the_smallest_id_stays(run_curate, document, many):
    text = many[0].text
    copies = [document(text, "late", f"copy{number}") for number in range(3)]
    curated = run_curate([*many, *copies])
    rows = [row for row in curated.decisions if row["rule"] == "exact_duplicate"]
    assert {row["id"] for row in rows} == {copy.id for copy in copies}
    assert {row["representative"] for row in rows} == {many[0].id}
    smallest, *others = sorted(copies, key=lambda copy: copy.id)
    curated = run_curate([*many[1:], *copies])
    rows = [row for row in curated.decisions if row["rule"] == "exact_duplicate"]
    assert {row["id"] for row in rows} == {copy.id for copy in others}
    assert {row["representative"] for row in rows} == {smallest.id}


def test_texts_that_cleaning_makes_equal_are_duplicates(run_curate, document, many):
    curated = run_curate(
        [
            *many,
            document(many[3].text + "\r", group="a"),
            *[document(many[3].text + end, group="b") for end in ("\n", "\x00\n")],
        ]
    )
    assert curated.funnel["total"]["dropped"]["exact_duplicate"] == 2


def test_a_record_that_was_read_twice_is_dropped_once(run_curate, many):
    curated = run_curate([*many, many[4]])
    row = curated.decision("exact_duplicate")
    assert row["id"] == row["representative"] == many[4].id
    assert row["detail"] == "the same record, read twice"
    check_books([*many, many[4]], curated)


def test_other_languages_are_dropped_with_what_was_detected(run_curate, document, many):
    german, digits = document(GERMAN, group="x"), document("12 34 " * 9, group="y")
    curated = run_curate([*many, german, digits])
    rows = {row["id"]: row for row in curated.decisions if row["rule"] == "language"}
    assert (rows[german.id]["detail"], rows[digits.id]["detail"]) == ("de", "und")
    assert 0.9 < rows[german.id]["value"] <= 1
    assert rows[digits.id]["value"] == 0
    kept = run_curate([*many, german, digits], language={"keep": ["en", "und"]}).kept
    assert digits.id in [d.id for d in kept]
    assert german.id not in [d.id for d in kept]


def test_near_duplicates_are_dropped_over_all_sources(run_curate, document, many, english):
    base = english("base", 300)
    near = document(base + " mother", "other", "elsewhere")
    exactly = document(base, group="here")
    curated = run_curate([*many, exactly, near])
    row = curated.decision("near_duplicate")
    # 296 shingles, and one more.
    assert (row["id"], row["representative"]) == (exactly.id, near.id)
    assert row["value"] == pytest.approx(296 / 297)
    assert row["threshold"] == 0.8
    assert curated.funnel["dedup"]["verified_pairs"] == 1
    assert curated.funnel["dedup"]["s_curve"]["0.8"] == pytest.approx(0.9235, abs=1e-4)


# The cap.


def test_a_cap_keeps_whole_groups_and_more_of_it_only_adds(run_curate, english, document):
    documents = [
        document(english(f"{group}-{number}"), "big", f"file{group}")
        for group in range(12)
        for number in range(4)
    ]
    small = [document(english(f"s{n}"), "small", f"small{n}") for n in range(12)]
    total = sum(len(d.text) for d in documents)
    before: set[str] = set()
    for share in (0.3, 0.6, 1.0):
        cap = int(total * share)
        curated = run_curate([*documents, *small], max_source_bytes=cap)
        check_books([*documents, *small], curated)
        big = [d for d in curated.kept if d.source == "big"]
        assert all(count == 4 for count in Counter(d.group for d in big).values())
        assert cap * 0.7 < sum(len(d.text) for d in big) <= cap
        assert len([d for d in curated.kept if d.source == "small"]) == 12
        rows = [row for row in curated.decisions if row["rule"] == "source_cap"]
        assert all(row["value"] > row["threshold"] == cap for row in rows)
        kept = {d.id for d in big}
        assert before <= kept
        before = kept
    assert len(before) == len(documents)


def test_a_cap_below_the_first_group_is_refused(run_curate, many):
    with pytest.raises(ValueError, match="max_source_bytes = 10 leaves nothing of source web"):
        run_curate(many, max_source_bytes=10)


# The split.


def test_a_group_is_never_cut_and_never_moves(run_curate, english, document):
    documents = [
        document(english(f"{group}-{number}"), group=f"file{group}")
        for group in range(30)
        for number in range(2)
    ]
    few, all_of_them = run_curate(documents[:30]), run_curate(documents)
    assert not {d.group for d in all_of_them.train} & {d.group for d in all_of_them.held_out}
    assert {d.id for d in few.train} <= {d.id for d in all_of_them.train}
    assert {d.id for d in few.held_out} <= {d.id for d in all_of_them.held_out}
    other = run_curate(documents, seed=1)
    assert {d.group for d in other.held_out} != {d.group for d in all_of_them.held_out}


def test_the_held_out_share_is_what_was_asked_for():
    held_out = sum(is_held_out(f"group {n}", 0.04, seed=7) for n in range(20_000))
    assert held_out / 20_000 == pytest.approx(0.04, abs=0.005)


@pytest.mark.parametrize(("fraction", "empty"), [(1e-9, "held-out"), (1 - 1e-9, "training")])
def test_an_empty_split_is_refused_with_the_counts(run_curate, many, fraction, empty):
    with pytest.raises(ValueError, match=f"of 20 documents left, .* {empty} split is empty"):
        run_curate(many, held_out_fraction=fraction)


@pytest.mark.parametrize(
    "rules", [{"length": {"min_characters": 10**6}}, {"language": {"keep": ["de"]}}]
)
def test_nothing_left_is_refused_with_the_funnel(run_curate, many, rules):
    with pytest.raises(ValueError, match="no document is left") as error:
        run_curate(many, **rules)
    header, web, total = str(error.value).splitlines()[1:]
    assert header.split() == ["source", "in", *RULES, "kept"]
    assert web.split()[:2] == ["web", "20"]
    assert total.split()[1:] == web.split()[1:]
    assert web.split().count("20") == 2


# The books, and determinism.

TEXTS = st.one_of(
    st.integers(0, 6).map(lambda n: f"This is the text number {n} of those that are much the same"),
    st.sampled_from([GERMAN, GERMAN * 2, "1 2 3 4 5 6 7 8 9 10 11", "", "short", "&lt;" * 30]),
    st.text(max_size=60),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(TEXTS, st.sampled_from("ab"), st.sampled_from("xyz")), max_size=25))
def test_the_funnel_adds_up_whatever_comes_in(run_curate, document, many, drawn):
    documents = many + [document(text, source, group) for text, source, group in drawn]
    check_books(documents, run_curate(documents, max_source_bytes=5000))


def mixed(document, english):
    """A corpus in which every rule has something to do."""
    base = [english(f"base{n}", 120) for n in range(40)]
    texts = base + base[:5] + [text + " end" for text in base[5:15]] + [GERMAN, "short", "x" * 1500]
    return [
        document(text, "abc"[number % 3], f"file{number // 2}") for number, text in enumerate(texts)
    ]


RULES_FOR_MIXED = {
    "max_source_bytes": 11_000,
    "length": {"min_characters": 20, "max_characters": 1000},
}


def test_workers_and_batches_do_not_change_a_byte(run_curate, document, english, monkeypatch):
    documents = mixed(document, english)
    alone = run_curate(documents, **RULES_FOR_MIXED)
    assert all(alone.funnel["total"]["dropped"].values())
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as two:
        together = run_curate(documents, executor=two, **RULES_FOR_MIXED)
    assert written(together.folder) == written(alone.folder)
    assert together.figures == alone.figures
    monkeypatch.setattr(data_curation.curate, "BATCH_CHARACTERS", 500)
    monkeypatch.setattr(data_curation.in_order, "ITEMS_IN_FLIGHT", 3)
    assert written(run_curate(documents, **RULES_FOR_MIXED).folder) == written(alone.folder)


def test_only_the_files_of_the_contract_are_left(run_curate, many):
    assert sorted(written(run_curate(many).folder)) == [
        "decisions.parquet",
        "funnel.json",
        "held_out/part-00000.parquet",
        "train/part-00000.parquet",
    ]


def test_documents_are_sorted_by_id_over_all_parts(run_curate, many, monkeypatch):
    whole = run_curate(many)
    monkeypatch.setattr(data_curation.sorted_parts, "PART_BYTES", 500)
    cut = run_curate(many)
    assert len(list((cut.folder / "train").iterdir())) > 2
    assert [d.id for d in cut.train] == sorted(d.id for d in cut.train)
    assert cut.train == whole.train
    assert cut.held_out == whole.held_out


# The recipe.


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"length": {"min_characters": 9, "max_characters": 8}}, "below min_characters = 9"),
        ({"language": {"keep": ["eng"]}}, "langdetect does not know eng"),
        ({"dedup": {"num_bands": 1}}, "greater than or equal to 2"),
    ],
)
def test_rules_that_cannot_work_are_refused(rules, message):
    with pytest.raises(ValidationError, match=message):
        CurationConfig.model_validate(rules)


def test_the_funnel_reads_as_the_contract_says(run_curate, many):
    funnel = run_curate(many).funnel
    assert list(funnel) == ["rules", "sources", "total", "dedup"]
    assert list(funnel["total"]) == [
        "in",
        "dropped",
        "train",
        "held_out",
        "bytes_in",
        "bytes_kept",
    ]
    assert list(funnel["dedup"]) == [
        "num_bands",
        "num_rows",
        "jaccard",
        "candidate_pairs",
        "verified_pairs",
        "s_curve",
    ]
    assert json.dumps(funnel)
