"""Where the ranks of a job compute: CUDA with NCCL where there is a GPU, else the CPU with gloo.

Import this before DeepSpeed and megatron-core: it settles DeepSpeed's choice of accelerator, which
would otherwise be probed again with a warning on every rank, and silences megatron-core's four
warnings about optional CUDA packages that this model does not use.
"""

from __future__ import annotations

import os
import warnings

import torch

HAS_CUDA = torch.cuda.is_available()
BACKEND = "nccl" if HAS_CUDA else "gloo"

if not HAS_CUDA:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
warnings.filterwarnings("ignore", message=".*Transformer Engine and Apex.*")
# megatron-core asks for one hardware queue so that a tensor-parallel all-reduce starts before the
# weight gradient that overlaps it.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")


def local_device() -> torch.device:
    """The device of this rank: the GPU that its LOCAL_RANK names, else the CPU."""
    if HAS_CUDA:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device("cpu")
