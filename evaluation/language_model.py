"""A Hugging Face GPT-2 folder as the `LM` that lm-evaluation-harness asks.

- Results stand in the order of the requests and do not depend on the batch size.
- The head and the softmax run at the positions that are asked for, and nowhere else: over a large
  vocabulary they are most of the work.
- A prompt that does not fit loses its beginning, as in lm-eval, and is counted. A continuation
  that does not fit is refused.
- Logits that are not finite are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GPT2LMHeadModel
from transformers.utils import logging as transformers_logging

from evaluation.shared_contexts import Batch, collate, pack

# B rows, T tokens, H hidden, P predicted tokens, V vocabulary, N windows

logger = logging.getLogger(__name__)

Request = tuple[tuple[str, str], list[int], list[int]]
"""lm-eval's: the two texts, the tokens of the context, the tokens of the continuation."""


class LanguageModel(TemplateLM):
    """A GPT-2 in fp32, on the GPU if there is one."""

    def __init__(self, gpt2: GPT2LMHeadModel, tokenizer: Tokenizer, *, batch_size: int) -> None:
        """Use `load` for a folder.

        Args:
            gpt2: the model, in evaluation mode.
            tokenizer: encodes text, special tokens spelled out in it included, as plain text.
            batch_size: rows of a forward pass.
        """
        super().__init__()
        self.gpt2 = gpt2
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.max_length: int = gpt2.config.n_positions
        self.truncated_requests = 0
        self.separately_encoded = 0

    @classmethod
    def load(cls, folder: Path, *, batch_size: int = 16) -> Self:
        """Load an exported folder; nothing is fetched from elsewhere.

        Raises:
            ValueError: the folder lacks a file, one cannot be read, or model and tokenizer do not
                fit each other.
        """
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} holds no {name}. Export the model again.")
        try:
            with _no_progress_bar():
                gpt2 = GPT2LMHeadModel.from_pretrained(
                    folder, dtype=torch.float32, local_files_only=True
                )
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # Each library has its own kinds, one of them bare.
            raise ValueError(
                f"{folder} holds no readable GPT-2 model: {error}. Export the model again."
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        if tokenizer.get_vocab_size() > gpt2.config.vocab_size:
            raise ValueError(
                f"{folder}: the tokenizer has {tokenizer.get_vocab_size()} tokens, the model "
                f"{gpt2.config.vocab_size}. They are not of one run; export again."
            )
        if gpt2.config.eos_token_id is None:
            raise ValueError(f"{folder}: config.json names no eos_token_id. Export again.")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(gpt2.eval().to(device), tokenizer, batch_size=batch_size)

    @property
    def eot_token_id(self) -> int:
        """The id of end-of-text, which also stands in for an empty context."""
        return int(self.gpt2.config.eos_token_id)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Encode text; no token is added, whatever is asked."""
        return list(self.tokenizer.encode(string, add_special_tokens=False).ids)

    def encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of a context and of what follows it; neither is empty.

        White space at the end of the context goes to the continuation. Both are encoded together
        and cut at the length of the context. If a token spans the cut and nothing is left, the
        continuation is encoded alone, and counted in `separately_encoded`.

        Raises:
            ValueError: the continuation is empty.
        """
        if not continuation:
            raise ValueError(f"an empty text was to be scored after {context[-80:]!r}")
        kept = context.rstrip()
        continuation = context[len(kept) :] + continuation
        context_tokens = self.tok_encode(kept)
        continuation_tokens = self.tok_encode(kept + continuation)[len(context_tokens) :]
        if not continuation_tokens:
            self.separately_encoded += 1
            logger.warning("a token spans %r and %r: encoded separately", kept[-20:], continuation)
            continuation_tokens = self.tok_encode(continuation)
        return context_tokens or [self.eot_token_id], continuation_tokens

    def is_truncated(self, context: Sequence[int], continuation: Sequence[int]) -> bool:
        """Whether the beginning of the context has no place in the model."""
        return len(context) + len(continuation) > self.max_length + 1

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log-likelihood (nats) of each continuation, and whether greedy decoding says it."""
        texts = [request.args for request in requests]
        return self._loglikelihood_tokens([(pair, *self.encode_pair(*pair)) for pair in texts])

    @torch.inference_mode()
    def _loglikelihood_tokens(
        self, requests: list[Request], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        rows = pack([self._fit(*request) for request in requests], 2 * self.max_length)
        nats = np.zeros(len(requests))
        misses = np.zeros(len(requests), dtype=np.int64)
        for first in range(0, len(rows), self.batch_size):
            batch = collate(rows[first : first + self.batch_size])
            logits_PV = self._logits(batch)
            numbers = batch.requests_P.numpy()
            targets_P = batch.targets_P.to(logits_PV.device)
            greedy_P = logits_PV.argmax(dim=-1) == targets_P
            nats_P = torch.nn.functional.cross_entropy(logits_PV, targets_P, reduction="none")
            np.add.at(nats, numbers, nats_P.double().cpu().numpy())
            np.add.at(misses, numbers, ~greedy_P.cpu().numpy())
        return [(-float(n), bool(m == 0)) for n, m in zip(nats, misses, strict=True)]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts, each token once, after end-of-text."""
        totals = []
        for request in requests:
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.eot_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = [make_disjoint_window(window) for window in windows]
            asked: list[Request] = [(("", ""), list(c), list(t)) for c, t in pairs]
            totals.append(sum(nats for nats, _ in self._loglikelihood_tokens(asked)))
        return totals

    @torch.inference_mode()
    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations, cut before the first stop text.

        Raises:
            ValueError: sampling is asked for; `evaluation.generation` samples.
        """
        texts = []
        for request in requests:
            context, settings = request.args
            if settings.get("do_sample", False) or settings.get("temperature", 0):
                raise ValueError(
                    f"generation settings {settings} ask for sampling, and only greedy decoding is "
                    "repeatable here. Set neither do_sample nor temperature."
                )
            most = settings.get("max_gen_toks", self.max_length // 2)
            prompt = self.tok_encode(context) or [self.eot_token_id]
            room = self.max_length - most
            if room < 1:
                raise ValueError(
                    f"max_gen_toks = {most} leaves no room for a prompt in a context of "
                    f"{self.max_length}. Lower it."
                )
            self.truncated_requests += len(prompt) > room
            tokens = torch.tensor([prompt[-room:]], device=self.gpt2.device)
            generated = self.gpt2.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                max_new_tokens=most,
                pad_token_id=self.eot_token_id,
            )
            text = self.tokenizer.decode(generated[0, tokens.shape[1] :].tolist())
            for stop in settings.get("until", []):
                text = text.split(stop)[0]
            texts.append(text)
        return texts

    @torch.inference_mode()
    def token_nats(self, windows_NT: NDArray[Any]) -> NDArray[np.float64]:
        """Negative log-probability of every token after the first of its window.

        Args:
            windows_NT: (N, T) ids, T - 1 at most `max_length`.

        Returns:
            (N, T - 1) nats.
        """
        found = []
        for first in range(0, len(windows_NT), self.batch_size):
            tokens_BT = torch.from_numpy(
                windows_NT[first : first + self.batch_size].astype(np.int64)
            ).to(self.gpt2.device)
            logits_BTV = self.finite(self.gpt2(tokens_BT[:, :-1], use_cache=False).logits)
            nats = torch.nn.functional.cross_entropy(
                logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten(), reduction="none"
            )
            found.append(nats.view(len(tokens_BT), -1).double().cpu().numpy())
        return np.concatenate(found)

    def _fit(
        self, texts: tuple[str, str], context: list[int], continuation: list[int]
    ) -> tuple[list[int], list[int]]:
        """Drop the beginning of a context for which there is no place."""
        if len(continuation) > self.max_length:
            raise ValueError(
                f"a continuation of {len(continuation)} tokens cannot be scored by a model of "
                f"{self.max_length} positions: {texts[1][:80]!r}. Shorten it."
            )
        self.truncated_requests += self.is_truncated(context, continuation)
        return context[-(self.max_length + 1 - len(continuation)) :], continuation

    def _logits(self, batch: Batch) -> Tensor:
        device = self.gpt2.device
        allowed_B1TT = batch.allowed_BTT[:, None].to(device)
        # Numbers to add, not truth values: every attention of transformers takes these.
        mask_B1TT = torch.zeros_like(allowed_B1TT, dtype=self.gpt2.dtype)
        mask_B1TT.masked_fill_(~allowed_B1TT, torch.finfo(self.gpt2.dtype).min)
        hidden_BTH = self.gpt2.transformer(
            batch.tokens_BT.to(device),
            position_ids=batch.positions_BT.to(device),
            attention_mask=mask_B1TT,
            use_cache=False,
        ).last_hidden_state
        hidden_PH = hidden_BTH[batch.rows_P.to(device), batch.columns_P.to(device)]
        return self.finite(self.gpt2.lm_head(hidden_PH))

    @staticmethod
    def finite(logits: Tensor) -> Tensor:
        """The logits as they are.

        Raises:
            ValueError: one is infinite or no number.
        """
        if not bool(torch.isfinite(logits).all()):
            raise ValueError(
                "the model gives logits that are not finite: its weights are damaged, or training "
                "diverged. Look at the loss of training, and train again."
            )
        return logits


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
