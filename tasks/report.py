"""Stage `report`: one page made from the records of all other stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.machine import machine_facts
from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest

STAGE = Stage("report", module="evaluation.report", data=("evaluation/templates",))


def report_request(
    recipe_name: str, recipe_yaml: str, command: str, artifacts: Mapping[str, Artifact]
) -> StageRequest:
    """Ask for the report of a run whose other stages stand in `artifacts`, in their order."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        from evaluation.report import write_report  # matplotlib takes seconds to import

        progress(0, None, "drawing")
        records = {
            "run": {
                "recipe_name": recipe_name,
                "recipe_yaml": recipe_yaml,
                "command": command,
                "machine": machine_facts(),
            },
            "stages": {name: _record(artifact) for name, artifact in artifacts.items()},
        }
        return write_report(records, out)

    return StageRequest(
        stage=STAGE,
        config={"recipe": recipe_yaml, "command": command},
        inputs=artifacts,
        build=build,
    )


def _record(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "key": artifact.key,
        "digest": artifact.digest,
        "folder": artifact.folder,
        "seconds": manifest.wall_seconds,
        "cpu_seconds": manifest.cpu_seconds,
        "peak_memory_bytes": manifest.peak_memory_bytes,
        "metrics": dict(manifest.figures),
        "reused": artifact.origin == "reused",
        "inputs": {name: given.digest for name, given in manifest.inputs.items()},
        "versions": dict(manifest.versions),
    }
