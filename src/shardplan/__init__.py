"""shardplan: plans the distributed training of large transformer models."""

__version__ = "0.1.0"
