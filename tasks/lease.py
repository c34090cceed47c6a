"""Who may build a key: a lock that dies with its holder, and a fence for when the lock lied.

Holding a lease means holding an `flock` on `<name>.lock`. The kernel frees it when the process
ends, however it ends, so a killed builder blocks nobody. The holder writes who it is, and a fresh
random *token*, into `<name>.lease`.

A lock can be lost without its holder noticing: somebody deletes the lock folder, or a network
file system drops the locks of a machine it has not heard from. So what must happen under the
lease happens inside `Lease.fenced()`, which compares the token on disk with its own. Taking a
lease and the fenced section exclude each other through `fence.lock`, so no new holder can appear
between the comparison and the rename.

Descriptors of locks are closed in forked children: a child that outlives a killed parent would
otherwise keep its lock.

Network file systems: NFS since version 4 and Lustre mounted with `flock` exclude processes on all
machines. Lustre mounted with `localflock` excludes those on one machine only: two machines may
then build one key at once, and the fence lets the one that started last publish. A file system
without `flock` is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.durable_files import write_text

POLL_S = 0.1
"""How often a waiter tries again. Polling, unlike a blocking flock, lets signals through."""


class Holder(BaseModel):
    """Who holds a lease, and since when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: str
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class LeaseLostError(RuntimeError):
    """Somebody else took the lease while its holder believed to have it."""


class Lease:
    """The right to build one name, held until `release`, or until the process ends.

    A context manager: leaving it releases.
    """

    def __init__(self, folder: Path, name: str, holder: Holder, descriptor: int) -> None:
        self.name = name
        self.holder = holder
        self._folder = folder
        self._descriptor = descriptor

    @classmethod
    def acquire(
        cls, folder: Path, name: str, on_wait: Callable[[str], None] | None = None
    ) -> Lease:
        """Wait until nobody else holds `name`, then hold it.

        Args:
            folder: where lock files are kept; made if missing.
            name: what is leased; a file name.
            on_wait: told, in words, who holds the lease, once for each holder waited for.

        Raises:
            ValueError: the file system knows no locks.
            OSError: the folder cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        waited_for: str | None = None
        while (descriptor := _try_lock(folder / f"{name}.lock")) is None:
            found = _read_holder(folder, name)
            told = str(found) if found else "another process"
            if on_wait is not None and told != waited_for and (found or waited_for is None):
                waited_for = told
                on_wait(told)
            time.sleep(POLL_S)
        try:
            holder = Holder(
                token=uuid.uuid4().hex,
                pid=os.getpid(),
                host=socket.gethostname(),
                since=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            with _fence(folder):
                write_text(folder / f"{name}.lease", holder.model_dump_json())
        except BaseException:
            _unlock(descriptor)
            raise
        return cls(folder, name, holder, descriptor)

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A section in which this lease is certainly held and nobody can take it. Keep it short.

        Raises:
            LeaseLostError: somebody else took the lease before.
        """
        with _fence(self._folder):
            found = _read_holder(self._folder, self.name)
            if found is None or found.token != self.holder.token:
                raise LeaseLostError(
                    f"{self.name}: this process ({self.holder}) lost its lease; now it is held by "
                    f"{found or 'nobody'}.\n"
                    "  What was built here is not published. Run again to use the other result."
                )
            yield

    def confirm(self) -> None:
        """Raise LeaseLostError if somebody else took the lease."""
        with self.fenced():
            pass

    def release(self) -> None:
        """Let others hold the name."""
        try:
            with _fence(self._folder):
                found = _read_holder(self._folder, self.name)
                if found is not None and found.token == self.holder.token:
                    (self._folder / f"{self.name}.lease").unlink()
        finally:
            _unlock(self._descriptor)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _read_holder(folder: Path, name: str) -> Holder | None:
    try:
        return Holder.model_validate_json((folder / f"{name}.lease").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


@contextmanager
def _fence(folder: Path) -> Iterator[None]:
    # The folder may have been deleted under a running builder.
    folder.mkdir(parents=True, exist_ok=True)
    while (descriptor := _try_lock(folder / "fence.lock")) is None:
        time.sleep(0.005)
    try:
        yield
    finally:
        _unlock(descriptor)


_descriptors: set[int] = set()
_descriptors_guard = threading.RLock()


def _try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None where another has it."""
    with _descriptors_guard:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was deleted meanwhile excludes nobody.
            if _is_at(descriptor, path):
                _descriptors.add(descriptor)
                return descriptor
        except BlockingIOError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise ValueError(
                    f"the file system of {path.parent} has no file locks (flock): "
                    f"{error.strerror}.\n"
                    "  Keep the artifacts on another, or mount it with locks (Lustre: -o flock)."
                ) from error
            raise
        os.close(descriptor)
        return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _unlock(descriptor: int) -> None:
    with _descriptors_guard:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _close_in_child() -> None:
    # Closing a copy leaves the parent's lock alone; LOCK_UN would not.
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()
    _descriptors_guard.release()


# The guard is held over a fork, so that no descriptor is open but not yet listed.
os.register_at_fork(
    before=_descriptors_guard.acquire,
    after_in_parent=_descriptors_guard.release,
    after_in_child=_close_in_child,
)
