"""The one Prefect task: turn a stage's request into a checkpointed artifact.

The artifact store decides what is built, not Prefect's result cache: that returns paths which no
longer exist, and its key does not see the code that a stage calls.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from tasks.artifacts import Artifact
from tasks.request import StageRequest
from tasks.session import current_session
from tasks.store import FOLDER_DIGITS


@task(
    name="build-artifact",
    task_run_name="build-{request.stage.name}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def build_artifact(request: StageRequest) -> State[Artifact]:
    """Find the artifact of `request` in the store, or build it.

    Returns:
        A state called Completed, Reused or Resumed that holds the artifact.
    """
    session = current_session()
    name, view = request.stage.name, session.view
    view.stage_started(name)
    session.record.stage_started(name)
    started = time.monotonic()

    def build(out: Path) -> dict[str, Any]:
        return request.build(
            out, lambda done, total, note: view.stage_progress(name, done, total, note)
        )

    try:
        artifact = session.store.build(
            request.stage,
            dict(request.config),
            dict(request.inputs),
            build,
            raw_inputs=dict(request.raw_inputs),
            force=name in session.forced_stages,
            on_wait=lambda holder: view.stage_waiting(name, holder),
        )
    except Exception as error:
        message = str(error) or type(error).__name__
        view.stage_failed(name, message)
        session.record.stage_failed(name, message)
        raise
    except BaseException:  # Ctrl-C, or Prefect's word for SIGTERM
        view.stage_failed(name, "interrupted")
        session.record.stage_failed(name, "interrupted", "interrupted")
        raise
    seconds = time.monotonic() - started
    session.record.stage_finished(artifact, seconds)
    view.stage_finished(name, artifact.origin, seconds, artifact.manifest.figures)
    state_name = {"built": "Completed", "reused": "Reused", "resumed": "Resumed"}[artifact.origin]
    return Completed(
        data=artifact, name=state_name, message=f"{artifact.key[:FOLDER_DIGITS]} {artifact.folder}"
    )
