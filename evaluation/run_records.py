"""What one run left on disk, read once and checked before anything is said about it.

The files are those of docs/formats.md. Two things must hold, or no report is written:

- the funnel adds up: documents in = dropped + train + held out, for each source and in total;
- the model and the n-gram models were scored on the same held-out tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

STAGES = ("ingest", "curate", "tokenize", "train", "export", "evaluate")


@dataclass(frozen=True)
class RunRecords:
    """The records of one run and the files of its stages.

    Attributes:
        run: recipe_name, recipe_yaml, command, machine.
        stages: by stage, in order: key, digest, folder, seconds, cpu_seconds, memory, lineage.
        sources: `sources.json` of ingest.
        funnel: `funnel.json` of curate.
        shards: `shards.json` of tokenize.
        training: `training.json` of train.
        steps: `metrics.jsonl` of train.
        validation: `validation.jsonl` of train.
        results: `results.json` of evaluate.
    """

    run: Mapping[str, Any]
    stages: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, Any]
    funnel: Mapping[str, Any]
    shards: Mapping[str, Any]
    training: Mapping[str, Any]
    steps: list[dict[str, Any]]
    validation: list[dict[str, Any]]
    results: Mapping[str, Any]

    def folder(self, stage: str) -> Path:
        return Path(self.stages[stage]["folder"])

    @property
    def versions(self) -> dict[str, list[str]]:
        """The versions of each package that the stages were built with; one, if all agree."""
        found: dict[str, set[str]] = {}
        for stage in self.stages.values():
            for package, version in stage["versions"].items():
                found.setdefault(package, set()).add(version)
        return {package: sorted(found[package]) for package in sorted(found)}


def read_records(records: Mapping[str, Any]) -> RunRecords:
    """Read the stages' files.

    Raises:
        ValueError: a stage is missing, or the records contradict themselves.
        FileNotFoundError: a stage's folder lacks a file of the contract.
    """
    stages = records["stages"]
    missing = [stage for stage in STAGES if stage not in stages]
    if missing:
        raise ValueError(
            f"report: no record of {', '.join(missing)}; it needs all of {', '.join(STAGES)}. "
            "Run the missing stages first."
        )
    folders = {stage: Path(stages[stage]["folder"]) for stage in STAGES}
    found = RunRecords(
        run=records["run"],
        stages={stage: stages[stage] for stage in STAGES},
        sources=_json(folders["ingest"] / "sources.json"),
        funnel=_json(folders["curate"] / "funnel.json"),
        shards=_json(folders["tokenize"] / "shards.json"),
        training=_json(folders["train"] / "training.json"),
        steps=_json_lines(folders["train"] / "metrics.jsonl"),
        validation=_json_lines(folders["train"] / "validation.jsonl"),
        results=_json(folders["evaluate"] / "results.json"),
    )
    _check_funnel(found.funnel)
    _check_held_out(found.results)
    return found


def _check_funnel(funnel: Mapping[str, Any]) -> None:
    rows = [*funnel["sources"].items(), ("total", funnel["total"])]
    for name, row in rows:
        unknown = set(row["dropped"]) - set(funnel["rules"])
        if unknown:
            raise ValueError(
                f"funnel.json: {name} lost documents to {', '.join(sorted(unknown))}, which is not "
                f"among the rules {', '.join(funnel['rules'])}. Curate again (`--force curate`)."
            )
        left = sum(row["dropped"].values()) + row["train"] + row["held_out"]
        if left != row["in"]:
            raise ValueError(
                f"funnel.json: {name} does not add up: {row['in']} documents in, {left} dropped "
                "or kept. Curate again (`--force curate`)."
            )
    summed = sum(row["in"] for row in funnel["sources"].values())
    if summed != funnel["total"]["in"]:
        raise ValueError(
            f"funnel.json: the sources hold {summed} documents, the total says "
            f"{funnel['total']['in']}. Curate again (`--force curate`)."
        )


def _check_held_out(results: Mapping[str, Any]) -> None:
    held_out = results["held_out"]
    for model in results["language_models"]:
        for unit in ("num_tokens", "num_bytes"):
            if model[unit] != held_out[unit]:
                raise ValueError(
                    f"results.json: the {model['name']} model was scored on {model[unit]} "
                    f"({unit}), the trained model on {held_out[unit]}; their losses cannot be "
                    "compared. Evaluate again (`--force evaluate`)."
                )
    for score in results["scores"]:
        if not 0 <= score["value"] <= 1:
            raise ValueError(
                f"results.json: {score['task']} {score['metric']} = {score['value']} is no "
                "proportion between 0 and 1; the report judges proportions only."
            )


def _json(path: Path) -> Any:
    return orjson.loads(path.read_bytes())


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]
