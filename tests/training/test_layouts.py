"""The same numbers in every layout, and the same as a plain loop over another implementation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_job import CLIP_GRAD_NORM, SEQUENCE_LENGTH, VOCAB_SIZE, Run, tiny_config
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from training.data_order import SampleOrder, chain
from training.export import gpt2_weights, merge_shards
from training.initialization import normal
from training.parameters import parameter_specs

SPLIT_LAYOUTS = ["2x1x1", "1x2x1", "1x1x2", "2x2x2"]

# Layouts sum in different orders, so losses near 5 differ in their last bits, 5e-7 each. What is
# measured after 20 steps is 1e-6; a tenfold distance is allowed.
TOLERANCE = 1e-5


@pytest.mark.parametrize("layout", SPLIT_LAYOUTS)
def test_losses_equal_the_single_process_run(layout: str, run: Callable[..., Run]) -> None:
    single, split = run("1x1x1"), run(layout)
    for field in ("loss", "grad_norm"):
        assert [m[field] for m in split.metrics] == pytest.approx(
            [m[field] for m in single.metrics], abs=TOLERANCE
        )
    assert [v["loss"] for v in split.validation] == pytest.approx(
        [v["loss"] for v in single.validation], abs=TOLERANCE
    )
    assert len(split.metrics) == 20


def test_the_compared_runs_learn_and_clip(run: Callable[..., Run]) -> None:
    metrics = run("1x1x1").metrics
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 0.5
    clipped = [m["grad_norm"] > CLIP_GRAD_NORM for m in metrics]
    assert any(clipped) and not all(clipped)


@pytest.mark.parametrize("layout", SPLIT_LAYOUTS)
def test_weights_equal_the_single_process_run(layout: str, run: Callable[..., Run]) -> None:
    single, split = (merge_shards(run(name).out / "model") for name in ("1x1x1", layout))
    assert single.keys() == split.keys()
    for name, weight in single.items():
        found, expected = split[name], weight
        if name.endswith("query_key_value.bias"):
            # Attention does not depend on the bias of keys: its gradient is rounding noise, which
            # Adam blows up to full steps.
            found, expected = (bias.view(4, 3, 8)[:, [0, 2]] for bias in (found, expected))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0, msg=name)


@pytest.mark.parametrize("layout", SPLIT_LAYOUTS)
def test_every_layout_draws_the_same_samples(layout: str, run: Callable[..., Run]) -> None:
    single, split = run("1x1x1"), run(layout)
    assert [m["sample_hash"] for m in single.metrics] == [m["sample_hash"] for m in split.metrics]
    seen = np.load(split.out / "seen_samples.npy")
    assert seen.dtype == np.int64
    assert chain("", seen) == split.metrics[-1]["sample_hash"]
    np.testing.assert_array_equal(seen, np.load(single.out / "seen_samples.npy"))


def test_losses_equal_a_plain_loop_over_another_gpt2(
    run: Callable[..., Run], tokenized: Path
) -> None:
    """Hugging Face's GPT-2, torch's clipping and AdamW, tokens read from the raw file."""
    torch.set_num_threads(1)
    trained = run("1x1x1")
    config, model = trained.config, trained.config.model
    gpt2 = _initial_gpt2(trained)
    decayed = [p for p in gpt2.parameters() if p.dim() == 2]
    other = [p for p in gpt2.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    stream = np.fromfile(tokenized / "shards" / "train-00000.bin", dtype=np.uint16).astype(np.int64)
    order = SampleOrder((len(stream) - 1) // SEQUENCE_LENGTH, seed=1)
    assert model.hidden_size == gpt2.config.n_embd
    losses, norms = [], []
    for step in range(20):
        samples = [order.at(step * config.global_batch + j) for j in range(config.global_batch)]
        windows = np.stack([stream[s * SEQUENCE_LENGTH :][: SEQUENCE_LENGTH + 1] for s in samples])
        tokens = torch.from_numpy(windows)
        logits = gpt2(tokens[:, :-1]).logits
        loss = functional.cross_entropy(logits.reshape(-1, VOCAB_SIZE), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(gpt2.parameters(), CLIP_GRAD_NORM).item())
        # Four steps of warm-up to 1e-2, then 16 steps of cosine to 1e-3.
        done = step + 1
        cosine = 1e-3 + 9e-3 * (1 + math.cos(math.pi * (done - 4) / 16)) / 2
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * done / 4 if done < 4 else cosine
        optimizer.step()
        losses.append(loss.item())
    assert [m["loss"] for m in trained.metrics] == pytest.approx(losses, abs=TOLERANCE)
    assert [m["grad_norm"] for m in trained.metrics] == pytest.approx(norms, abs=TOLERANCE)


def test_recomputed_activations_change_nothing(run: Callable[..., Run]) -> None:
    plain, recomputed = run("1x2x1"), run("1x2x1", activation_checkpointing=True)
    assert [m["loss"] for m in recomputed.metrics] == [m["loss"] for m in plain.metrics]
    assert recomputed.summary["model_flops_per_token"] == plain.summary["model_flops_per_token"]
    assert recomputed.summary["hfu"] > recomputed.summary["mfu"]


def test_bf16_stays_near_fp32(run: Callable[..., Run]) -> None:
    exact, rounded = run("2x2x2"), run("2x2x2", precision="bf16")
    assert [m["loss"] for m in rounded.metrics] == pytest.approx(
        [m["loss"] for m in exact.metrics], abs=0.03
    )


def test_validation_covers_the_asked_tokens_in_every_layout(run: Callable[..., Run]) -> None:
    for layout in ("1x1x1", "2x2x2"):
        validation = run(layout).validation
        assert [v["step"] for v in validation] == [0, 10, 20]
        assert {v["num_tokens"] for v in validation} == {7 * SEQUENCE_LENGTH}


def test_stdout_carries_events_and_nothing_else(run: Callable[..., Run]) -> None:
    finished = run("2x2x2")
    events = finished.events
    assert {e["event"] for e in events} == {"progress", "checkpoint", "done"}
    assert events[-1] == {"event": "done"}
    assert [e["step"] for e in events if e["event"] == "checkpoint"] == [8, 16, 20]
    last = [e for e in events if e["event"] == "progress"][-1]
    assert (last["step"], last["num_steps"], last["seconds_left"]) == (20, 20, 0)
    assert last["tokens"] == last["total_tokens"] == 20 * 8 * SEQUENCE_LENGTH
    assert last["loss"] == finished.metrics[-1]["loss"]
    assert last["validation_loss"] == finished.validation[-1]["loss"]


def test_the_output_is_complete(run: Callable[..., Run]) -> None:
    finished = run("2x2x2")
    summary = finished.summary
    # 301 x 32 + 16 x 32 embeddings, 2 layers of 12 x 32^2 + 13 x 32, and 2 x 32 of the last norm.
    assert summary["num_parameters"] == 9632 + 512 + 2 * (12288 + 416) + 64
    assert summary["num_steps"] == 20
    assert summary["final_loss"] == finished.metrics[-1]["loss"]
    assert summary["resumed_from"] == []
    assert 0 < summary["mfu"] == summary["hfu"] < 1
    meta = json.loads((finished.out / "model" / "meta.json").read_text())
    assert (meta["vocab_size"], meta["padded_vocab_size"]) == (301, 384)
    shards = sorted(f.name for f in (finished.out / "model").glob("*.safetensors"))
    assert shards == [f"stage-0{s}-shard-0{t}.safetensors" for s in (0, 1) for t in (0, 1)]
    checkpoints = sorted(f.name for f in (finished.out / "checkpoint").iterdir())
    assert checkpoints == ["latest", "step-00000020"]
    board = EventAccumulator(str(finished.out / "tensorboard")).Reload()
    losses = board.Scalars("training/loss")
    assert [s.step for s in losses] == [m["tokens"] for m in finished.metrics]
    assert [s.step for s in board.Scalars("validation/loss")] == [0, 1280, 2560]


def _initial_gpt2(trained: Run) -> GPT2LMHeadModel:
    """GPT-2 with the weights that the recipe says: N(0, sqrt(1/3H)), residual outputs scaled."""
    model = trained.config.model
    std = math.sqrt(1 / (3 * 32))
    weights = {}
    for name, spec in parameter_specs(model, 384).items():
        if len(spec.shape) == 1:
            fill = torch.ones if name.endswith("layernorm.weight") else torch.zeros
            weights[name] = fill(spec.shape)
        else:
            is_output = name.endswith(("attention.dense.weight", "dense_4h_to_h.weight"))
            scaled = std / math.sqrt(2 * 2) if is_output else std
            weights[name] = normal(scaled, seed=1, name=name)(torch.empty(spec.shape))
    config = GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_positions=SEQUENCE_LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=4,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    gpt2 = GPT2LMHeadModel(config)
    renamed = gpt2_weights(weights, model, VOCAB_SIZE, SEQUENCE_LENGTH)
    gpt2.load_state_dict(renamed, strict=False)
    gpt2.tie_weights()
    return gpt2


def test_the_launcher_must_start_as_many_ranks_as_the_layout_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from training.grid import initialize_grid

    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match=r"needs 8 ranks, but the launcher started 4"):
        initialize_grid(tiny_config("2x2x2").layout)
