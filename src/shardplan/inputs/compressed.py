"""Attention to a short window and to compressed keys (DeepSeek-V4), and several streams instead of one residual.

Both follow the modules of ``transformers`` (``models/deepseek_v4/modeling_deepseek_v4.py``). Symbols: :math:`h` hidden
size, :math:`n` heads, :math:`d` head size, :math:`m` tokens of a compressed key, :math:`s` streams.
"""

from __future__ import annotations

from typing import ClassVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.counts import check_counts
from shardplan.inputs.recurrent import MixerFacts


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(MixerFacts):
    r"""Attention to the last ``window`` tokens and to one compressed key of every ``compress_rate`` earlier ones.

    One key-value head, whose keys serve as values; a low-rank query; an output projection in ``o_groups`` groups.
    With ``index_topk`` an indexer selects the compressed keys of every query, and windows of compression overlap.
    Parameters, with :math:`r, r_o` the ranks of query and output, :math:`g` groups and :math:`c` the channels that are
    compressed (:math:`2 d` where windows overlap, otherwise :math:`d`):
    :math:`h r + r + r n d + h d + d + n d r_o + g r_o h + n`, the compressor :math:`2 h c + m c + d`, and the indexer
    :math:`4 h d_i + 2 m d_i + d_i + r n_i d_i + h n_i`.
    """

    title = "compressed attention"
    dimensions: ClassVar = {"num_attention_heads": "num_heads"} | {
        name: name for name in ("head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "compress_rate", "index_topk")
    }
    shared_by_tp = ("num_heads", "o_groups")

    num_heads: int
    """Query heads."""
    head_dim: int
    """Size of one head, for queries and for the keys that also serve as values."""
    rope_head_dim: int
    """Channels of a head that are rotated."""
    q_lora_rank: int
    """Rank of the query compression."""
    o_lora_rank: int
    """Channels of one group between the two output projections."""
    o_groups: int
    """Groups of heads in the first output projection; divides ``num_heads``."""
    window: int
    """Number of uncompressed keys that each query sees, itself included."""
    compress_rate: int | None = None
    """Tokens of one compressed key; None if a query sees only the window."""
    index_topk: int | None = None
    """Compressed keys that the indexer selects per query; None: all of them."""
    index_num_heads: int = 0
    """Heads of the indexer."""
    index_head_dim: int = 0
    """Size of one indexer head."""

    def __post_init__(self) -> None:
        sizes = ("num_heads", "head_dim", "rope_head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "window")
        check_counts(self, *sizes)
        if self.num_heads % self.o_groups:
            raise InputError(
                f"{self.num_heads} heads do not divide into {self.o_groups} groups",
                rule="o_groups divides num_attention_heads",
                hint="set o_groups to a divisor of num_attention_heads",
            )
        if self.compress_rate is not None:
            check_counts(self, "compress_rate")
        if self.index_topk is not None:
            check_counts(self, "index_topk", "index_num_heads", "index_head_dim")
        if self.index_topk is not None and self.compress_rate is None:
            raise InputError(
                f"index_topk is {self.index_topk} with no compressed keys",
                rule="an indexer selects compressed keys",
                hint="give a compress_rate, or leave out index_topk",
            )

    @property
    def compressed_channels(self) -> int:
        """Channels of a token that are pooled to compressed keys: twice a head where windows overlap."""
        return 0 if self.compress_rate is None else self.head_dim * (1 + (self.index_topk is not None))

    @property
    def index_channels(self) -> int:
        """Channels of a token that are pooled to the keys of the indexer."""
        return 2 * self.index_head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Weights, norms and sinks of one module, compressor and indexer included."""
        h, r, n, d = hidden_size, self.q_lora_rank, self.num_heads, self.head_dim
        query, keys = h * r + r + r * n * d, h * d + d
        output = n * d * self.o_lora_rank + self.o_groups * self.o_lora_rank * h
        return query + keys + output + n + self._compressor(h) + self._indexer(h)

    def _compressor(self, hidden_size: int) -> int:
        """Keys and gates of a token, biases by position in the window, and the norm of a compressed key."""
        if self.compress_rate is None:
            return 0
        return (2 * hidden_size + self.compress_rate) * self.compressed_channels + self.head_dim

    def _indexer(self, hidden_size: int) -> int:
        """A compressor of its own, queries from the compressed query, and the weights of its heads."""
        if self.index_topk is None or self.compress_rate is None:
            return 0
        n, d = self.index_num_heads, self.index_head_dim
        keys = (2 * hidden_size + self.compress_rate) * self.index_channels + d
        return keys + self.q_lora_rank * n * d + hidden_size * n


def connection_parameters(hidden_size: int, streams: int) -> int:
    r"""Parameters of the hyper-connection around one block: :math:`(2 + s) s (s h + 1) + 3`; 0 with one stream.

    Weights that mix s streams into the block's input, its output into s streams, and s streams into s (manifold-
    constrained hyper-connections, arXiv 2512.24880).
    """
    return (2 + streams) * streams * (streams * hidden_size + 1) + 3 if streams > 1 else 0


def collapse_parameters(hidden_size: int, streams: int) -> int:
    r"""Parameters that combine s streams into one after the last layer: :math:`s (s h + 1) + 1`."""
    return streams * (streams * hidden_size + 1) + 1 if streams > 1 else 0
