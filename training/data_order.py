"""The order in which training samples are drawn.

A *position* counts samples from the first of the run. `SampleOrder.at(position)` names the sample
drawn there. It is a pure function of the seed and the number of samples:

- no layout, batch size, worker count or budget enters it;
- extending a run changes no earlier position;
- an epoch visits each sample once, in an order of its own.

Nothing is stored: the permutation of an epoch is a Feistel network over the smallest power of two
that holds all samples, walked until it lands on a sample (Black and Rogaway 2002, "Ciphers with
arbitrary finite domains"). Each step of the walk hits with probability above one half.

`chain` folds drawn samples into a digest, one by one. It depends on their sequence alone: however
a run is cut into steps, layouts and resumptions, equal digests mean equal samples in equal order.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

# Below 16 rounds the orders of a handful of samples are visibly unequal in frequency.
_NUM_ROUNDS = 24
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class SampleOrder:
    """Names the sample at each position of a run."""

    def __init__(self, num_samples: int, seed: int) -> None:
        """Order `num_samples` samples by `seed`.

        Raises:
            ValueError: there is no sample to draw.
        """
        if num_samples < 1:
            raise ValueError(f"num_samples is {num_samples}; an order needs at least one sample")
        self.num_samples = num_samples
        self.seed = seed
        bits = (num_samples - 1).bit_length()
        self._right_bits = np.uint64(bits - bits // 2)
        self._left_mask = np.uint64((1 << (bits // 2)) - 1)
        self._right_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        keys = hashlib.shake_256(f"mtnlg sample order {seed}".encode()).digest(8 * _NUM_ROUNDS)
        self._round_keys = np.frombuffer(keys, dtype="<u8").astype(np.uint64)

    def at(self, position: int) -> int:
        """The index of the sample at `position`."""
        return int(self.at_many(np.array([position], dtype=np.int64))[0])

    def at_many(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sample indices at `positions`, an array of the same shape.

        Raises:
            ValueError: a position is negative.
        """
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and positions.min() < 0:
            raise ValueError(f"position {positions.min()} is before the first, 0")
        flat = positions.ravel()
        epochs = (flat // self.num_samples).astype(np.uint64)
        samples = self._permute((flat % self.num_samples).astype(np.uint64), epochs)
        while (outside := np.flatnonzero(samples >= np.uint64(self.num_samples))).size:
            samples[outside] = self._permute(samples[outside], epochs[outside])
        return samples.astype(np.int64).reshape(positions.shape)

    def _permute(
        self, values: NDArray[np.uint64], epochs: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        left = values >> self._right_bits
        right = values & self._right_mask
        for number, round_key in enumerate(self._round_keys):
            key = _mix(round_key + epochs * _GOLDEN)
            if number % 2:
                left ^= _mix(right ^ key) & self._left_mask
            else:
                right ^= _mix(left ^ key) & self._right_mask
        return (left << self._right_bits) | right


def chain(previous: str, sample_indices: NDArray[np.int64]) -> str:
    """Fold samples, in the order of the run, into a rolling digest.

    Args:
        previous: the digest so far; "" before the first sample.
        sample_indices: (B,) indices of the samples drawn since, in global order.

    Returns:
        32 hexadecimal digits. `chain(chain(p, a), b) == chain(p, concatenate([a, b]))`.
    """
    digest = bytes.fromhex(previous)
    for index in np.asarray(sample_indices, dtype=np.int64).tolist():
        digest = hashlib.blake2b(digest + struct.pack("<q", index), digest_size=16).digest()
    return digest.hex()


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words in which every input bit moves every output bit.

    Source: splitmix64 (Steele, Lea and Flood 2014), its finalizer by Stafford, variant 13.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
