"""The run's own Prefect server: ready when it says so, and gone when the run is."""

import os
import signal
import urllib.request

import pytest

from infra.prefect_server import PrefectServer, ServerError

HOLDER = """
import time
from pathlib import Path
from infra.prefect_server import PrefectServer
server = PrefectServer(Path({home!r}))
server.start()
server.wait_ready()
print(server._process.pid, server.url, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def no_server_given(monkeypatch, tmp_path):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(tmp_path / "profiles.toml"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One database for all tests here: creating it is what takes time."""
    return tmp_path_factory.mktemp("prefect")


def is_healthy(server: PrefectServer) -> bool:
    with urllib.request.urlopen(f"{server.url}/health", timeout=5) as response:
        return response.read() == b"true"


def test_two_runs_at_once_share_a_new_database(start, home):
    processes = [start(HOLDER.format(home=str(home))) for _ in range(2)]
    urls = {process.stdout.readline().split()[1] for process in processes}
    assert len(urls) == 2
    for url in urls:
        with urllib.request.urlopen(f"{url}/admin/version", timeout=5) as response:
            assert response.status == 200


def test_the_server_answers_and_is_gone_after_stop(home):
    server = PrefectServer(home)
    with server:
        server.wait_ready()
        assert is_healthy(server)
    with pytest.raises(OSError):
        is_healthy(server)


def test_the_users_own_prefect_settings_do_not_reach_the_server(home, monkeypatch):
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "nonsense")
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "NONSENSE")
    with PrefectServer(home) as server:
        server.wait_ready()
        assert is_healthy(server)


def test_kill_9_of_its_owner_ends_the_server(start, wait_until, gone, home):
    process = start(HOLDER.format(home=str(home)))
    server = int(process.stdout.readline().split()[0])
    assert not gone([server])
    process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone([server]))


def test_a_given_server_is_used_and_none_started(monkeypatch, tmp_path):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setattr("infra.prefect_server.START_DEADLINE_S", 0.2)
    server = PrefectServer(tmp_path / "home")
    server.start()
    with pytest.raises(
        ServerError, match=r"127\.0\.0\.1:1/api did not answer .* unset PREFECT_API_URL"
    ):
        server.wait_ready()
    assert not (tmp_path / "home").exists()


def test_the_server_of_the_active_profile_is_used_with_the_users_own_settings(tmp_path):
    (tmp_path / "profiles.toml").write_text(
        'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n'
        '[profiles.theirs]\nPREFECT_API_URL = "http://127.0.0.1:2/api"\n'
    )
    server = PrefectServer(tmp_path / "home")
    server.start()
    assert server.url == "http://127.0.0.1:1/api"
    assert "PREFECT_HOME" not in server.settings()
    assert not (tmp_path / "home").exists()


def test_neither_a_proxy_nor_the_users_database_comes_into_it(start, home, tmp_path):
    theirs = tmp_path / "theirs.db"
    environment = {
        "http_proxy": "http://127.0.0.1:1",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{theirs}",
    }
    process = start(HOLDER.format(home=str(home)), env={**os.environ, **environment})
    assert "http://127.0.0.1" in process.stdout.readline()
    assert not theirs.exists()


def test_a_server_that_cannot_start_is_told_with_its_log(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "prefect.db").write_bytes(b"no database at all, however long it is" * 100)
    with PrefectServer(home) as server, pytest.raises(ServerError, match=r"server\.log"):
        server.wait_ready()


def test_an_address_that_is_none_is_refused_by_the_name_of_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "banana")
    with pytest.raises(ServerError, match="PREFECT_API_URL is 'banana'"):
        PrefectServer(tmp_path).wait_ready()
