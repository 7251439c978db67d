"""Mixers that carry a state along the sequence instead of reading all of it, and their numbers of parameters.

Symbols: :math:`h` hidden size, :math:`n` heads, :math:`d` head size, :math:`k` length of the convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.counts import check_counts


class MixerFacts:
    """Facts about every mixer in addition to its fields and parameters."""

    title: ClassVar[str]
    """Its name; records of frameworks write it in lower case with hyphens."""
    dimensions: ClassVar[Mapping[str, str]]
    """Its fields by their names in the catalogue."""
    shared_by_tp: ClassVar[tuple[str, ...]] = ("num_heads",)
    """Fields that tensor parallelism divides: heads, groups of heads, or channels."""
    has_heads: ClassVar[bool] = True
    """False if tensor parallelism divides single channels."""


@dataclass(frozen=True, kw_only=True)
class StateSpace(MixerFacts):
    r"""Mamba-2 mixer. Dao and Gu 2024, arXiv 2405.21060.

    With inner size :math:`i = n d` and convolved channels :math:`c = i + 2 G S` (G groups, S states): parameters
    :math:`h (i + c + n) + k c + 3 n + i + i h`, plus biases.
    """

    title = "Mamba-2"
    dimensions: ClassVar = {
        "mamba_num_heads": "num_heads",
        "mamba_head_dim": "head_dim",
        "ssm_state_size": "state_size",
    }
    shared_by_tp = ("num_heads", "num_groups")

    num_heads: int
    """Heads."""
    head_dim: int
    """Channels per head."""
    state_size: int
    """States per channel."""
    num_groups: int
    """Groups of heads that share the B and C projections."""
    conv_kernel: int
    """Length of the causal convolution."""
    chunk_size: int
    """Tokens per chunk of the scan."""
    conv_bias: bool
    """Bias of the convolution."""
    proj_bias: bool
    """Biases of the input and output projections."""
    gated_norm: bool = True
    """A norm over the inner channels precedes the output projection (Falcon-H1: a gate alone)."""

    def __post_init__(self) -> None:
        check_counts(self, "num_heads", "head_dim", "state_size", "num_groups", "conv_kernel", "chunk_size")
        if self.num_heads % self.num_groups:
            raise InputError(
                f"{self.num_heads} state-space heads do not divide into {self.num_groups} groups",
                rule="num_groups divides num_heads",
                hint="set n_groups to a divisor of mamba_num_heads",
            )

    @property
    def inner_size(self) -> int:
        """Channels between the projections."""
        return self.num_heads * self.head_dim

    @property
    def conv_size(self) -> int:
        """Channels that the convolution runs over."""
        return self.inner_size + 2 * self.num_groups * self.state_size

    def num_parameters(self, hidden_size: int) -> int:
        """Projections, convolution, per-head scalars (step bias, A, D) and the gated norm."""
        projected = self.inner_size + self.conv_size + self.num_heads
        input_projection = (hidden_size + self.proj_bias) * projected
        convolution = (self.conv_kernel + self.conv_bias) * self.conv_size
        output_projection = (self.inner_size + self.proj_bias) * hidden_size
        norm = self.inner_size * self.gated_norm
        return input_projection + convolution + 3 * self.num_heads + norm + output_projection


@dataclass(frozen=True, kw_only=True)
class SelectiveScan(MixerFacts):
    r"""Mamba-1 mixer. Gu and Dao 2023, arXiv 2312.00752.

    With :math:`i` inner channels, :math:`S` states and the rank :math:`r` of the step size: parameters
    :math:`2 h i + k i + i (r + 2 S) + (r + 1) i + i S + i + i h`, plus biases, and :math:`r + 2 S` for norms of step
    size, B and C (Jamba, arXiv 2403.19887, section 6.4).
    """

    title = "Mamba-1"
    dimensions: ClassVar = {
        "mamba_inner_size": "inner_size",
        "mamba_state_size": "state_size",
        "mamba_dt_rank": "dt_rank",
    }
    shared_by_tp = ("inner_size",)
    has_heads = False

    inner_size: int
    """Channels between the projections."""
    state_size: int
    """States per channel."""
    dt_rank: int
    """Rank of the projection of the step size."""
    conv_kernel: int
    """Length of the causal convolution."""
    conv_bias: bool
    """Bias of the convolution."""
    proj_bias: bool
    """Biases of the input and output projections."""
    inner_norms: bool = False
    """Norms of step size, B and C, with weights (Jamba)."""

    def __post_init__(self) -> None:
        check_counts(self, "inner_size", "state_size", "dt_rank", "conv_kernel")

    @property
    def selection_size(self) -> int:
        """Channels of step size, B and C."""
        return self.dt_rank + 2 * self.state_size

    def num_parameters(self, hidden_size: int) -> int:
        """Projections, convolution, step size, A, D and the inner norms."""
        inner = self.inner_size
        projections = 2 * (hidden_size + self.proj_bias) * inner + (inner + self.proj_bias) * hidden_size
        convolution = (self.conv_kernel + self.conv_bias) * inner
        selection = inner * self.selection_size + (self.dt_rank + 1) * inner + self.selection_size * self.inner_norms
        return projections + convolution + selection + inner * (self.state_size + 1)


@dataclass(frozen=True, kw_only=True)
class LinearAttention(MixerFacts):
    r"""Gated delta network (Qwen3-Next, Qwen3.5). Yang et al. 2024, arXiv 2412.06464.

    With :math:`K = n_k d_k` and :math:`W = n_v d_v`: parameters
    :math:`h (2 K + 2 W + 2 n_v) + k (2 K + W) + 2 n_v + d_v + W h`.
    """

    title = "gated delta net"
    dimensions: ClassVar = {"linear_num_key_heads": "num_key_heads", "linear_num_value_heads": "num_value_heads"}
    shared_by_tp = ("num_key_heads", "num_value_heads")

    num_key_heads: int
    """Query and key heads."""
    num_value_heads: int
    """Value heads; a multiple of ``num_key_heads``."""
    key_head_dim: int
    """Channels per query and key head."""
    value_head_dim: int
    """Channels per value head."""
    conv_kernel: int
    """Length of the causal convolution over queries, keys and values."""

    def __post_init__(self) -> None:
        check_counts(self, "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel")
        if self.num_value_heads % self.num_key_heads:
            raise InputError(
                f"{self.num_value_heads} value heads cannot share {self.num_key_heads} key heads",
                rule="num_key_heads divides num_value_heads",
                hint="set linear_num_key_heads to a divisor of linear_num_value_heads",
            )

    @property
    def key_size(self) -> int:
        """Channels of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_size(self) -> int:
        """Channels of all values."""
        return self.num_value_heads * self.value_head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Projections, convolution, per-head scalars (step bias, A) and the gated norm of one head."""
        projected = 2 * self.key_size + 2 * self.value_size + 2 * self.num_value_heads
        convolution = self.conv_kernel * (2 * self.key_size + self.value_size)
        scalars_and_norm = 2 * self.num_value_heads + self.value_head_dim
        return hidden_size * (projected + self.value_size) + convolution + scalars_and_norm


@dataclass(frozen=True, kw_only=True)
class DeltaAttention(MixerFacts):
    r"""Kimi delta attention: a delta network whose decay is per channel. Moonshot AI 2025, arXiv 2510.26692.

    With :math:`W = n d` channels of queries, keys and values each: parameters :math:`4 h W + 3 k W + h n`
    :math:`+ 2 (h d + d W) + W + n + d` for projections, convolution, step, low-rank decay and output gate, step bias,
    A and the gated norm of one head.
    """

    title = "Kimi delta attention"
    dimensions: ClassVar = {"linear_num_heads": "num_heads", "linear_head_dim": "head_dim"}

    num_heads: int
    """Heads of queries, keys and values."""
    head_dim: int
    """Channels per head, and the rank of decay and output gate."""
    conv_kernel: int
    """Length of the causal convolution over queries, keys and values."""

    def __post_init__(self) -> None:
        check_counts(self, "num_heads", "head_dim", "conv_kernel")

    @property
    def inner_size(self) -> int:
        """Channels of queries, of keys and of values."""
        return self.num_heads * self.head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Projections, convolution, low-rank gates, per-head scalars and the gated norm of one head."""
        projections = hidden_size * (4 * self.inner_size + self.num_heads)
        gates = 2 * self.head_dim * (hidden_size + self.inner_size)
        scalars_and_norm = self.inner_size + self.num_heads + self.head_dim
        return projections + gates + 3 * self.conv_kernel * self.inner_size + scalars_and_norm


@dataclass(frozen=True, kw_only=True)
class LightningAttention(MixerFacts):
    r"""Linear attention with a fixed decay per head and a gated, normalised output. MiniMax-01, arXiv 2501.08313.

    Parameters, with :math:`W = n d`: :math:`5 h W + W` (queries, keys, values, gate, output and the norm).
    """

    title = "lightning attention"
    dimensions: ClassVar = {"linear_num_heads": "num_heads", "linear_head_dim": "head_dim"}

    num_heads: int
    """Heads of queries, keys and values."""
    head_dim: int
    """Channels per head."""

    def __post_init__(self) -> None:
        check_counts(self, "num_heads", "head_dim")

    @property
    def inner_size(self) -> int:
        """Channels of queries, of keys and of values."""
        return self.num_heads * self.head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Projections and the norm of the output."""
        return (5 * hidden_size + 1) * self.inner_size


@dataclass(frozen=True, kw_only=True)
class ShortConvolution(MixerFacts):
    r"""Gated short convolution: :math:`C \odot conv(B \odot x)`, B, C and x projected together. LFM2, arXiv 2511.23404.

    Parameters, with :math:`c` channels: :math:`3 h c + k c + c h`, plus biases.
    """

    title = "short convolution"
    dimensions: ClassVar = {"conv_kernel": "conv_kernel"}
    shared_by_tp = ("num_channels",)
    has_heads = False

    num_channels: int
    """Channels that the convolution runs over."""
    conv_kernel: int
    """Length of the causal convolution."""
    bias: bool = False
    """Biases of both projections and of the convolution."""

    def __post_init__(self) -> None:
        check_counts(self, "num_channels", "conv_kernel")

    def num_parameters(self, hidden_size: int) -> int:
        """Projections and convolution."""
        channels = self.num_channels
        input_projection = 3 * (hidden_size + self.bias) * channels
        return input_projection + (self.conv_kernel + self.bias) * channels + (channels + self.bias) * hidden_size


Recurrent = SelectiveScan | StateSpace | LinearAttention | DeltaAttention | LightningAttention | ShortConvolution
"""The mixers of this file."""
