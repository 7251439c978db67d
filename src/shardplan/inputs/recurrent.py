"""Mixers that carry a state along the sequence instead of reading all of it, and how many parameters each has.

Symbols: :math:`h` hidden size, :math:`n` heads, :math:`d` head size, :math:`k` length of the convolution.
"""

from __future__ import annotations

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.inputs.counts import check_counts


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSpace:
    r"""Mamba-2 mixer. Dao and Gu 2024, arXiv 2405.21060.

    With inner size :math:`i = n d` and convolved channels :math:`c = i + 2 G S` (G groups, S states): parameters
    :math:`h (i + c + n) + k c + 3 n + i + i h`, plus biases.
    """

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
        return input_projection + convolution + 3 * self.num_heads + self.inner_size + output_projection


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearAttention:
    r"""Gated delta network (Qwen3-Next, Qwen3.5). Yang et al. 2024, arXiv 2412.06464.

    With :math:`K = n_k d_k` and :math:`W = n_v d_v`: parameters
    :math:`h (2 K + 2 W + 2 n_v) + k (2 K + W) + 2 n_v + d_v + W h`.
    """

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
