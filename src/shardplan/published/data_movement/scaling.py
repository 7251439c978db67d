"""How a training run grows with its compute: parameters, tokens, batch, shape. What the limits curve assumes."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass

YEAR = 365.25 * 86400.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run of so much compute. Numbers, or arrays over runs."""

    training_flop: Numbers
    num_parameters: Numbers
    tokens: Numbers
    """Tokens of the whole training."""
    batch_tokens: Numbers
    """Tokens of one step."""
    num_blocks: Numbers
    """Blocks in a row; real numbers here and below."""
    hidden_size: Numbers

    @property
    def num_steps(self) -> Numbers:
        """Optimizer steps."""
        return self.tokens / self.batch_tokens


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the limits curve takes for granted; each can be replaced."""

    training_time_s: float = YEAR / 4
    """Three months, as in arXiv 2411.01137. [s]"""
    tokens_per_parameter: float = 20.0
    """Compute-optimal training of dense models (Hoffmann et al., arXiv 2203.15556)."""
    batch_tokens: float = 3.2e6
    """Batch of GPT-3 (arXiv 2005.14165, table 2.1), from which batches grow. [tokens]"""
    batch_flop: float = 3.14e23
    """Training compute of GPT-3 (arXiv 2005.14165, table D.1). [FLOP]"""
    batch_exponent: float = 1 / 6
    """Batches grow as this power of training compute: here as the cube root of the tokens, more slowly than the fits of
    Kaplan et al. (0.24, arXiv 2001.08361) and of DeepSeek LLM (0.327, arXiv 2401.02954)."""
    expansion: float = 5.0
    """A block is a layer from the hidden size to this multiple of it, and one back (the notebook's 16384 to 81920)."""
    aspect_ratio: float = 128.0
    """Hidden size over blocks at ``shape_parameters`` (GPT-3: 12288 over 96)."""
    shape_parameters: float = 175e9
    """Parameters at which the shape has that aspect ratio."""
    depth_exponent: float = 1 / 3
    """Blocks grow as this power of parameters; with a third the aspect ratio stays."""
    bytewidth: float = 2.0
    """Bytes per number (bf16)."""
    fast_domain: float = 8.0
    """Devices that the device's own link joins (HGX H100); between such domains runs the outer network."""
    outer_bandwidth: float = 100e9
    """Outer network of one device, both directions together: InfiniBand NDR, 400 Gb/s each. [bytes/s]"""
    link_latency_s: float = 0.936e-6
    """One hop inside a domain; an all-reduce takes two. NVLink: astra-sim's validated HGX-H100 network. [s]"""
    outer_latency_s: float = 5e-6
    """One hop between domains. InfiniBand: low-latency tree of NCCL 2.30.7, ``src/graph/tuning.cc``. [s]"""
    kernel_latency_s: float = 4e-6
    """Fixed time of a matrix product (intercept of measured timings: 3 to 4 us on H100). [s]"""

    def run(self, training_flop: Numbers) -> Run:
        r"""The run of that compute.

        With :math:`k` tokens per parameter: :math:`C = 6 N D`, :math:`D = k N`; batch :math:`b_0 (C / C_0)^\beta`, the
        whole training at most; :math:`N = 2 r L h^2` with expansion r and :math:`L = L_0 (N / N_0)^\delta` blocks.
        """
        parameters = np.sqrt(training_flop / (6 * self.tokens_per_parameter))
        tokens = self.tokens_per_parameter * parameters
        grown = self.batch_tokens * (training_flop / self.batch_flop) ** self.batch_exponent
        blocks_then = (self.shape_parameters / (2 * self.expansion * self.aspect_ratio**2)) ** (1 / 3)
        blocks = np.maximum(blocks_then * (parameters / self.shape_parameters) ** self.depth_exponent, 1)
        return Run(
            training_flop=training_flop,
            num_parameters=parameters,
            tokens=tokens,
            batch_tokens=np.minimum(grown, tokens),
            num_blocks=blocks,
            hidden_size=np.sqrt(parameters / (2 * self.expansion * blocks)),
        )
