"""Several continuations of one context, scored in one row of a batch.

A row holds the context once, and after it the continuations, each without its last token:

    tokens       c c c c | a a a | b b
    positions    0 1 2 3 | 4 5 6 | 4 5

A token attends to the context and to its own continuation, so each continuation is scored as if
it stood alone. The context's last token predicts the first token of every continuation.
"""

# ruff: noqa: N815 - fields carry their shape

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# B rows, T tokens of the longest row, P predicted tokens of all rows

_PADDING = -1
_CONTEXT = 0


@dataclass(frozen=True)
class Row:
    """A context and what is asked to follow it: (number of the request, its tokens)."""

    context: tuple[int, ...]
    continuations: list[tuple[int, Sequence[int]]]

    def __len__(self) -> int:
        return len(self.context) + sum(len(tokens) - 1 for _, tokens in self.continuations)


@dataclass(frozen=True)
class Batch:
    """Rows as tensors.

    Attributes:
        tokens_BT: padded on the right.
        positions_BT: positions of the tokens, as the model counts them.
        allowed_BTT: which token (last but one) may attend to which (last).
        rows_P, columns_P: where each predicted token is predicted.
        targets_P: the predicted tokens.
        requests_P: the request that each belongs to.
    """

    tokens_BT: Tensor
    positions_BT: Tensor
    allowed_BTT: Tensor
    rows_P: Tensor
    columns_P: Tensor
    targets_P: Tensor
    requests_P: Tensor


def pack(requests: Sequence[tuple[Sequence[int], Sequence[int]]], max_length: int) -> list[Row]:
    """Gather requests of equal context into rows, longest first.

    Args:
        requests: (context, continuation), neither empty, each fitting the model.
        max_length: of a row, where it holds more than one continuation.
    """
    open_rows: dict[tuple[int, ...], Row] = {}
    rows: list[Row] = []
    for number, (context, continuation) in enumerate(requests):
        key = tuple(context)
        row = open_rows.get(key)
        if row is None or len(row) + len(continuation) - 1 > max_length:
            row = open_rows[key] = Row(key, [])
            rows.append(row)
        row.continuations.append((number, continuation))
    return sorted(rows, key=len, reverse=True)


def collate(rows: Sequence[Row]) -> Batch:
    """Put rows into tensors."""
    longest = max(len(row) for row in rows)
    tokens_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    positions_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    parts_BT = torch.full((len(rows), longest), _PADDING)
    predictions: list[tuple[int, int, int, int]] = []
    for r, row in enumerate(rows):
        end = len(row.context)
        tokens_BT[r, :end] = torch.tensor(row.context)
        positions_BT[r, :end] = torch.arange(end)
        parts_BT[r, :end] = _CONTEXT
        column = end
        for part, (number, continuation) in enumerate(row.continuations, start=1):
            predictions.append((r, end - 1, continuation[0], number))
            for i, token in enumerate(continuation[:-1]):
                tokens_BT[r, column] = token
                positions_BT[r, column] = end + i
                parts_BT[r, column] = part
                predictions.append((r, column, continuation[i + 1], number))
                column += 1
    same_BTT = parts_BT[:, :, None] == parts_BT[:, None, :]
    of_context_BTT = (parts_BT == _CONTEXT)[:, None, :]
    earlier_TT = torch.ones(longest, longest, dtype=torch.bool).tril()
    rows_P, columns_P, targets_P, requests_P = torch.tensor(predictions).unbind(dim=1)
    return Batch(
        tokens_BT,
        positions_BT,
        (same_BTT | of_context_BTT) & earlier_TT,
        rows_P,
        columns_P,
        targets_P,
        requests_P,
    )
