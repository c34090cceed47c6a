"""One rank that loads a finished job's checkpoint and writes the trainer's own logits.

Arguments: the job file, a .npy of (B, S) token ids, and where to write the (B, S, V) logits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from training.checkpoint import CheckpointStore
from training.engine import build_engine
from training.grid import initialize_grid
from training.samples import TokenizedSplit
from training.worker import TrainingJob

# isort: split
from megatron.core import parallel_state


def main(argv: Sequence[str]) -> None:
    job = TrainingJob.model_validate_json(Path(argv[0]).read_bytes())
    tokens_BS = torch.from_numpy(np.load(argv[1]))
    config, checkpoints = job.config, job.out / "checkpoint"
    grid = initialize_grid(config.layout)
    vocab_size = TokenizedSplit(job.tokenized, "train", config.sequence_length).vocab_size
    engine, _ = build_engine(config, grid, vocab_size=vocab_size, seed=job.seed + 1)
    (state,) = checkpoints.glob("step-*/state.json")
    restored = CheckpointStore(checkpoints, json.loads(state.read_text())["job"], engine).restore()
    assert restored is not None
    _, logits_BSV = engine.eval_batch(
        iter([(tokens_BS, tokens_BS)]),
        return_logits=True,
        compute_loss=False,
        reduce_output=None,
        num_micro_batches=1,
    )
    if grid.pipeline_rank == config.layout.pipeline_parallel - 1:
        parts = [torch.empty_like(logits_BSV) for _ in range(config.layout.tensor_parallel)]
        dist.all_gather(
            parts, logits_BSV.contiguous(), group=parallel_state.get_tensor_model_parallel_group()
        )
        if grid.data_rank == 0 and grid.tensor_rank == 0:
            np.save(argv[2], torch.cat(parts, dim=-1).numpy())
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1:])
