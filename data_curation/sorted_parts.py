"""Documents written in the order of their ids, in parts of bounded size.

Ids are digests, so equal ranges of ids hold about equally much, and the order is a shuffle. A part
is one range: documents go to the scratch file of their range, and each range is sorted by itself.
"""

from __future__ import annotations

from pathlib import Path

from data_curation.documents import Document, DocumentWriter, part_name, read_documents

PART_BYTES = 128 << 20
"""UTF-8 bytes of text in a part, about; one part is in memory at a time."""


class SortedParts:
    """Writes the documents of one split, parts numbered without gaps.

    Args:
        folder: receives the parts; it is made.
        scratch: folder for scratch files, of this split alone.
        total_bytes: UTF-8 bytes of all texts that will be added.
    """

    def __init__(self, folder: Path, scratch: Path, total_bytes: int) -> None:
        self._folder = folder
        folder.mkdir()
        scratch.mkdir()
        count = max(1, -(-total_bytes // PART_BYTES))
        self._paths = [scratch / part_name(number) for number in range(count)]
        self._writers = [DocumentWriter(path) for path in self._paths]

    def add(self, document: Document, text_bytes: int) -> None:
        """Add a document; `text_bytes` is the size of its text in UTF-8."""
        number = int(document.id[:8], 16) * len(self._writers) >> 32
        self._writers[number].add(document, text_bytes)

    def finish(self) -> None:
        """Sort and write the parts."""
        for writer in self._writers:
            writer.close()
        num_parts = 0
        for path in self._paths:
            documents = sorted(read_documents([path]), key=lambda document: document.id)
            path.unlink()
            if documents:
                with DocumentWriter(self._folder / part_name(num_parts)) as writer:
                    for document in documents:
                        writer.add(document, len(document.text.encode()))
                num_parts += 1
