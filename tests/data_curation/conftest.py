"""What the tests of ingest and curate share: workers, English text, folders of documents."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from data_curation.config import CurationConfig
from data_curation.curate import curate
from data_curation.documents import (
    Document,
    DocumentWriter,
    document_id,
    part_name,
    parts,
    read_documents,
)

COMMON_WORDS = """
the of and to in is that it was for on are as with his they be at one have this from by hot word
but what some can out other were all there when your how said each she which their time will way
about many then them would write like these her long make thing see him two has look more day could
come did my sound no most number who over know water than call first people may down side been now
find any new work part take get place made live where after back little only round man year came
show every good me give our under name very through just form much great think say help low line
before turn cause same mean differ move right boy old too does tell sentence set three want air
well also play small end put home read hand port large spell add even land here must big high such
follow act why ask men change went light kind off need house picture try again animal point mother
"""


@pytest.fixture(scope="session")
def thread():
    """One worker in this process: the smallest executor there is."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="session")
def english():
    """english(seed, words): text that langdetect takes for English, another for each seed."""

    def make(seed: object, num_words: int = 60) -> str:
        return " ".join(random.Random(str(seed)).choices(COMMON_WORDS.split(), k=num_words))

    return make


@pytest.fixture(scope="session")
def document():
    """document(text, source, group): a document with the id that ingest would give it."""

    def make(text: str, source: str = "web", group: str = "g") -> Document:
        locator = f"{group}#{len(text)}"
        return Document(document_id(source, locator, text.encode()), source, group, locator, text)

    return make


@pytest.fixture(scope="session")
def ingested():
    """ingested(folder, documents): a folder as the stage ingest leaves it."""

    def make(folder, documents, documents_a_part=7):
        (folder / "documents").mkdir(parents=True)
        for number, start in enumerate(range(0, len(documents), documents_a_part)):
            with DocumentWriter(folder / "documents" / part_name(number)) as writer:
                for one in documents[start : start + documents_a_part]:
                    writer.add(one, len(one.text.encode()))
        return folder

    return make


class Curated:
    """A finished stage curate, read back."""

    def __init__(self, folder, figures):
        import pyarrow.parquet as pq

        self.folder = folder
        self.figures = figures
        self.train = list(read_documents(parts(folder / "train")))
        self.held_out = list(read_documents(parts(folder / "held_out")))
        self.kept = self.train + self.held_out
        self.decisions = pq.read_table(folder / "decisions.parquet").to_pylist()
        self.funnel = json.loads((folder / "funnel.json").read_text())

    def decision(self, rule):
        """The one row of a rule."""
        (row,) = [row for row in self.decisions if row["rule"] == rule]
        return row


@pytest.fixture
def run_curate(thread, ingested, tmp_path):
    """run_curate(documents, **rules): curate documents and read back what was written."""
    count = 0

    def run(documents, *, seed=0, executor=thread, **rules):
        nonlocal count
        count += 1
        rules = {"held_out_fraction": 0.5, "length": {"min_characters": 20}, **rules}
        source, out = tmp_path / f"ingested-{count}", tmp_path / f"curated-{count}"
        out.mkdir()
        figures = curate(
            CurationConfig.model_validate(rules),
            ingested(source, documents),
            out,
            seed=seed,
            executor=executor,
            progress=lambda done, total, note: None,
        )
        return Curated(out, figures)

    return run
