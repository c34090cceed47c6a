"""The trained model on disk: one safetensors file a pipeline stage and tensor-parallel rank.

The numbers are those that the forward pass used (bf16 weights where training was in bf16), as
fp32, by logical name. The tied word embedding is written by the first stage alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn import Parameter

from training.config import TrainingConfig
from training.grid import Grid
from training.model_files import META, shard_name
from training.parameters import WORD_EMBEDDINGS, padded_vocab_size, parameter_specs


def write_model(
    folder: Path,
    config: TrainingConfig,
    grid: Grid,
    parameters: Mapping[str, Parameter],
    *,
    vocab_size: int,
    tokenizer_sha256: str,
) -> None:
    """Write the model; every rank calls this.

    Args:
        folder: where to; made if absent.
        config: the training job.
        grid: this rank's place in the layout.
        parameters: this rank's parameters by logical name.
        vocab_size: real vocabulary, before padding.
        tokenizer_sha256: digest of the tokenizer that the ids belong to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if grid.data_rank == 0:
        # Copied, because views into DeepSpeed's flat buffers share storage, which safetensors
        # refuses.
        tensors = {
            name: parameter.detach().to("cpu", torch.float32, copy=True).contiguous()
            for name, parameter in parameters.items()
            if grid.is_first_stage or not name.startswith(WORD_EMBEDDINGS)
        }
        save_file(tensors, folder / shard_name(grid.pipeline_rank, grid.tensor_rank))
    if grid.rank == 0:
        num_rows = padded_vocab_size(vocab_size, config.model.vocab_padding_multiple)
        meta: dict[str, Any] = {
            "format": 1,
            "model": config.model.model_dump(mode="json"),
            "layout": config.layout.model_dump(mode="json"),
            "vocab_size": vocab_size,
            "padded_vocab_size": num_rows,
            "sequence_length": config.sequence_length,
            "tokenizer_sha256": tokenizer_sha256,
            "parameters": {
                name: {"shape": list(spec.shape), "partition_dimension": spec.partition_dimension}
                for name, spec in parameter_specs(config.model, num_rows).items()
            },
        }
        (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    dist.barrier()
