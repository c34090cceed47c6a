"""Work spread over an executor, with results in the order of the work.

Only a bounded number of items is in flight, so memory does not grow with the corpus. What comes
out does not depend on the number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_IN_FLIGHT = 64
"""Enough to keep 32 workers busy."""


def map_in_order(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with `function(item)`, computed by the executor's workers.

    Raises:
        Exception: whatever `function` raised, at the turn of its item.
    """
    pending: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            if len(pending) == ITEMS_IN_FLIGHT:
                first, future = pending.popleft()
                yield first, future.result()
            pending.append((item, executor.submit(function, item)))
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    finally:
        for _, future in pending:
            future.cancel()
