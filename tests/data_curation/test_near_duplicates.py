"""Near-duplicates are those of brute force over all pairs, wherever LSH proposes the pair."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from data_curation.config import DedupConfig
from data_curation.near_duplicates import NearDuplicates, candidate_probability
from data_curation.shingles import MAX_CHARACTERS, shingles, signature

# P(missed | J = 0.5) = 0.5^40: every pair that counts is proposed.
ALL_PAIRS = {"num_bands": 40, "num_rows": 1}


def brute_shingles(text, size):
    """Sets of tuples of words, the slow way."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text.lower()).split()
    windows = zip(*(words[start:] for start in range(size)), strict=False)
    return set(windows) or {tuple(words)}


def brute_jaccard(one, other, size):
    a, b = brute_shingles(one, size), brute_shingles(other, size)
    return len(a & b) / len(a | b)


def brute_clusters(texts, threshold, size):
    """Connected components by flooding, of at least two documents each."""
    near = {number: set() for number in range(len(texts))}
    for i, j in combinations(range(len(texts)), 2):
        if brute_jaccard(texts[i], texts[j], size) >= threshold:
            near[i].add(j)
            near[j].add(i)
    clusters, seen = [], set()
    for start in near:
        if start in seen or not near[start]:
            continue
        cluster, waiting = set(), [start]
        while waiting:
            number = waiting.pop()
            if number not in cluster:
                cluster.add(number)
                waiting.extend(near[number])
        seen |= cluster
        clusters.append(cluster)
    return clusters


def cluster(texts, folder, executor, ids=None, batch=3, **config):
    dedup = DedupConfig(**config)
    ids = ids or [f"{number:032x}" for number in range(len(texts))]
    with NearDuplicates(dedup, folder / "shingles") as near:
        for start in range(0, len(texts), batch):
            hashes = [shingles(text, dedup.shingle_words) for text in texts[start : start + batch]]
            signatures = [signature(h, dedup.num_bands * dedup.num_rows) for h in hashes]
            counts = np.array([len(h) for h in hashes])
            near.add(np.stack(signatures), np.concatenate(hashes), counts)
        return near.cluster([len(t) for t in texts], ids, executor, lambda share: None)


def edited(words, count):
    """Replace words so far apart, and from the ends, that each edit changes five shingles."""
    words = list(words)
    gap = len(words) // count
    for place in range(gap // 2, gap * count, gap):
        words[place] = f"{count}edits{place}"
    return words


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=9), max_size=14),
    st.sampled_from([0.5, 0.6, 0.75, 0.8, 1.0]),
    st.sampled_from([1, 2, 5]),
)
def test_clusters_are_those_of_brute_force(tmp_path_factory, thread, words, threshold, size):
    texts = [" ".join(line) for line in words]
    found = cluster(
        texts,
        tmp_path_factory.mktemp("near"),
        thread,
        jaccard=threshold,
        shingle_words=size,
        **ALL_PAIRS,
    )
    clusters = brute_clusters(texts, threshold, size)
    kept = [min(c, key=lambda number: (-len(texts[number]), number)) for c in clusters]
    assert set(found.dropped) == set().union(*clusters) - set(kept)
    for number, near in found.dropped.items():
        (own,) = [c for c in clusters if number in c]
        assert near.representative in own
        assert near.representative in kept
        other = near.representative if near.neighbour is None else near.neighbour
        assert near.jaccard == brute_jaccard(texts[number], texts[other], size) >= threshold
    assert found.verified_pairs == sum(
        brute_jaccard(a, b, size) >= threshold for a, b in combinations(texts, 2)
    )


def test_planted_near_duplicates_are_found_and_those_just_below_the_threshold_stay(
    tmp_path, thread
):
    base = [f"word{number}" for number in range(400)]
    texts = [" ".join(words) for words in (base, edited(base, 8), edited(base, 9))]
    # Of 396 shingles on either side, 40 and 45 differ.
    assert brute_jaccard(texts[0], texts[1], 5) == 356 / 436 > 0.8
    assert brute_jaccard(texts[0], texts[2], 5) == 351 / 441 < 0.8
    found = cluster(texts, tmp_path, thread, jaccard=0.8, **ALL_PAIRS)
    assert found.dropped.keys() in ({0}, {1})
    assert found.candidate_pairs >= 2
    assert found.verified_pairs == 1


def test_a_similarity_equal_to_the_threshold_counts(tmp_path, thread):
    texts = ["a b c d e f g h i", "a b c d e f g h x"]  # 8 of 10
    config = {"shingle_words": 1, **ALL_PAIRS}
    assert len(cluster(texts, tmp_path, thread, jaccard=0.8, **config).dropped) == 1
    assert len(cluster(texts, tmp_path, thread, jaccard=0.81, **config).dropped) == 0


def test_a_chain_is_one_cluster_and_says_by_whom_each_was_found(tmp_path, thread):
    words = [f"w{number}" for number in range(14)]
    # Each shares 9 of 11 words with the next, 8 of 12 with the one after.
    texts = [" ".join(words[start : start + 10]) for start in range(3)]
    texts[2] += "." * 9  # The longest; full stops are no words.
    found = cluster(texts, tmp_path, thread, jaccard=0.8, shingle_words=1, **ALL_PAIRS)
    assert sorted(found.dropped) == [0, 1]
    assert found.dropped[1] == (2, 9 / 11, None)
    assert found.dropped[0] == (2, 9 / 11, 1)


def test_of_equally_long_ones_the_smallest_id_stays(tmp_path, thread):
    texts = ["One two three four five six.", "one two three four five six!"]
    found = cluster(texts, tmp_path, thread, ids=["b" * 32, "a" * 32], **ALL_PAIRS)
    assert list(found.dropped) == [0]


def test_recall_at_the_default_bands_follows_the_s_curve(tmp_path, thread):
    rng = random.Random(0)
    texts = []
    for number in range(60):
        base = [f"d{number}w{rng.randrange(10**6)}" for _ in range(300)]
        # Two edits far apart: 10 of 296 shingles, J = 286/306 = 0.935.
        texts += [" ".join(base), " ".join(edited(base, 2))]
    found = cluster(texts, tmp_path, thread)
    assert len(found.dropped) >= 58
    assert candidate_probability(0.935, 14, 8) > 0.9999
    assert candidate_probability(0.8, 14, 8) == pytest.approx(0.924, abs=5e-4)


def test_texts_shorter_than_a_shingle_are_one_shingle(tmp_path, thread):
    assert len(shingles("two words", 5)) == 1
    assert len(shingles("a b c d e", 5)) == 1
    assert len(shingles("a b c d e f", 5)) == 2
    assert len(shingles("-- --", 5)) == 1
    found = cluster(["Two words", "two  words", "other words"], tmp_path, thread, **ALL_PAIRS)
    assert len(found.dropped) == 1


@given(st.text(max_size=200), st.integers(1, 6))
def test_shingles_are_sorted_and_distinct(text, size):
    hashes = shingles(text, size)
    assert len(hashes) >= 1
    assert all(a < b for a, b in pairwise(hashes.tolist()))


def test_signatures_are_those_of_datasketch():
    hashes = np.random.default_rng(0).integers(0, 2**63, 20_000, dtype=np.uint64)
    peer = MinHash(112, hashfunc=lambda value: int(value) & 0xFFFFFFFF)
    peer.update_batch(hashes)
    assert (signature(hashes, 112) == peer.hashvalues).all()


def test_of_a_huge_text_the_beginning_counts():
    text = " ".join(f"w{number}" for number in range(200_000))
    assert len(text) > MAX_CHARACTERS
    assert (shingles(text, 5) == shingles(text[:MAX_CHARACTERS], 5)).all()
