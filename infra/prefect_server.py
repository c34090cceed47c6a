"""A Prefect server of this run's own: on loopback, in a process that ends with ours.

Prefect can start such a server by itself, but that one outlives a run that is killed, and takes
its settings from wherever the user's are. Here everything Prefect writes is in one folder, nothing
is sent anywhere, and the background services that only schedules and workers need are off. The
database stays, so past runs can be looked at later. If the user's environment or active Prefect
profile names a server, that one is used with the user's own settings, and none is started.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from infra.processes import end_processes, guarded_command

START_DEADLINE_S = 120.0
GIVEN_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0

_HOST = "127.0.0.1"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_IDLE_SERVICES = (
    "CANCELLATION_CLEANUP",
    "DB_VACUUM",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)


class ServerError(RuntimeError):
    """The Prefect server did not start."""


class PrefectServer:
    """Started in the background, waited for when first needed, stopped at the end.

    Args:
        home: folder for Prefect's database and log.
    """

    def __init__(self, home: Path) -> None:
        self._home = home.resolve()
        self._given_url = os.environ.get("PREFECT_API_URL") or _url_in_profile()
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._start_lock: BinaryIO | None = None

    @property
    def url(self) -> str:
        """Address of the API."""
        return self._given_url or f"http://{_HOST}:{self._port}/api"

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self._home / "server.log"

    def start(self) -> None:
        """Begin to start the server; waits only for another that is starting on this database."""
        if self._given_url:
            return
        self._home.mkdir(parents=True, exist_ok=True)
        # Two servers that create or migrate one database at once would break it; two that run
        # on it do not. The kernel frees the lock if we are killed.
        self._start_lock = (self._home / "start.lock").open("wb")
        fcntl.flock(self._start_lock, fcntl.LOCK_EX)
        self._port = _free_port()
        command = [
            *(sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
            *("--host", _HOST, "--port", str(self._port)),
            *("--log-level", "warning", "--timeout-keep-alive", "5"),
        ]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                guarded_command(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_foreign_environment(), **self.settings(), **_server_settings()},
                # Prefect also reads settings files in the folder where it is started.
                cwd=self._home,
                process_group=0,
            )

    def wait_ready(self) -> None:
        """Return once the server answers.

        Raises:
            ServerError: it ended, or did not answer in time.
        """
        if not self.url.startswith(("http://", "https://")):
            raise ServerError(
                f"PREFECT_API_URL is {self.url!r}, no http address; correct or unset it"
            )
        # One that is given should be there already; one's own takes long on a busy machine.
        patience_s = GIVEN_DEADLINE_S if self._given_url else START_DEADLINE_S
        deadline = time.monotonic() + patience_s
        while not self._answers():
            if self._process is not None and self._process.poll() is not None:
                raise ServerError(self._explain(f"ended with code {self._process.returncode}"))
            if time.monotonic() > deadline:
                raise ServerError(self._explain(f"did not answer within {patience_s:.0f} s"))
            time.sleep(0.05)
        self._unlock()

    def stop(self) -> None:
        """End the server that was started here, if any."""
        self._unlock()
        if self._process is not None:
            end_processes([self._process], within_s=STOP_DEADLINE_S)
            self._process = None

    def settings(self) -> dict[str, str]:
        """Environment for processes that talk to the server; set it before importing prefect."""
        always = {"DO_NOT_TRACK": "1", "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore"}
        if self._given_url:
            return {**always, "PREFECT_API_URL": self.url}
        # A proxy cannot reach our loopback; urllib, httpx and websockets all heed this.
        hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        direct = f"{hosts},{_HOST}" if hosts else _HOST
        return {
            **always,
            "PREFECT_API_URL": self.url,
            "PREFECT_HOME": str(self._home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "no_proxy": direct,
            "NO_PROXY": direct,
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        open_url = urllib.request.urlopen if self._given_url else _DIRECT.open
        try:
            with open_url(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as refusal:
            # A given server that wants credentials is there; Prefect has them, not we.
            return bool(self._given_url) and refusal.code in (401, 403)
        except (urllib.error.URLError, OSError):
            return False

    def _unlock(self) -> None:
        if self._start_lock is not None:
            self._start_lock.close()
            self._start_lock = None

    def _explain(self, what: str) -> str:
        where = f"the Prefect server at {self.url}"
        if self._process is None:
            return (
                f"{where} {what}; start it, or unset PREFECT_API_URL (in the environment and in the"
                " Prefect profile) to use one of this run's own"
            )
        return (
            f"{where} {what}; its log is {self.log_file}.\n"
            f"  If its database is damaged, delete {self._home}: only its history of runs is there."
        )


def _foreign_environment() -> dict[str, str]:
    """All but Prefect's own settings: another database, say, that the user has for other work."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def _server_settings() -> dict[str, str]:
    off = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _IDLE_SERVICES}
    return {
        **off,
        # Blocks are for deployments; to register their types takes a quarter of a first start.
        # Without the memo: it would say done to a full server that opens this database later.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_UI_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        # The server must not look for a server.
        "PREFECT_API_URL": "",
        "PREFECT__SERVER_FINAL": "1",
    }


def _url_in_profile() -> str | None:
    """The API that the user's active Prefect profile names; to import prefect for it takes 1 s."""
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect").expanduser()
    file = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").expanduser()
    try:
        profiles = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    url: str | None = profiles.get("profiles", {}).get(active, {}).get("PREFECT_API_URL")
    return url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
