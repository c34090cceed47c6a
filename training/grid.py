"""Which rank does what: tensor-parallel ranks are neighbours, pipeline stages are far apart.

megatron-core owns the tensor-parallel groups and DeepSpeed the pipeline and data-parallel ones.
Both must give a rank the same coordinates; that is asserted, because a disagreement would train
a wrong model without an error.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass

import torch.distributed as dist

from training.config import LayoutConfig
from training.device import BACKEND, HAS_CUDA, local_device

# isort: split
import deepspeed
import deepspeed.ops
import torch
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from megatron.core import parallel_state


@dataclass(frozen=True)
class Grid:
    """This rank's place in the layout."""

    layout: LayoutConfig
    topology: PipeModelDataParallelTopology
    rank: int
    pipeline_rank: int
    data_rank: int
    tensor_rank: int

    @property
    def is_first_stage(self) -> bool:
        return self.pipeline_rank == 0


def initialize_grid(layout: LayoutConfig, *, timeout_s: float = 1800.0) -> Grid:
    """Join the other ranks and build the process groups of the layout.

    The launcher gives RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

    Raises:
        ValueError: if the launcher started another number of ranks than the layout needs.
    """
    world_size = int(os.environ["WORLD_SIZE"])
    if world_size != layout.num_ranks:
        raise ValueError(
            f"layout: tensor {layout.tensor_parallel} x pipeline {layout.pipeline_parallel} x "
            f"data {layout.data_parallel} needs {layout.num_ranks} ranks, but the launcher "
            f"started {world_size}. Start {layout.num_ranks}, or change the layout."
        )
    if HAS_CUDA:
        torch.cuda.set_device(local_device())
    else:
        # DeepSpeed would compile its shared-memory collective (a minute, and a compiler needed);
        # gloo does the same work. The dictionary is not a documented option, hence the pinned
        # version of DeepSpeed.
        deepspeed.ops.__compatible_ops__ = {}
    deepspeed.init_distributed(
        dist_backend=BACKEND,
        auto_mpi_discovery=False,
        verbose=False,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor_parallel,
        pipeline_model_parallel_size=layout.pipeline_parallel,
        create_gloo_process_groups=False,
    )
    topology = PipeModelDataParallelTopology(
        num_pp=layout.pipeline_parallel,
        num_mp=layout.tensor_parallel,
        num_dp=layout.data_parallel,
    )
    rank = dist.get_rank()
    coordinates = topology.get_coord(rank)
    grid = Grid(
        layout=layout,
        topology=topology,
        rank=rank,
        pipeline_rank=parallel_state.get_pipeline_model_parallel_rank(),
        data_rank=parallel_state.get_data_parallel_rank(),
        tensor_rank=parallel_state.get_tensor_model_parallel_rank(),
    )
    assert (coordinates.pipe, coordinates.data, coordinates.model) == (
        grid.pipeline_rank,
        grid.data_rank,
        grid.tensor_rank,
    ), f"rank {rank}: DeepSpeed says {coordinates}, megatron-core {grid}"
    return grid
