"""How many layers each model chunk of a pipeline holds where a plan does not state it."""

from __future__ import annotations


def chunk_layers(num_layers: int, num_chunks: int, num_mtp_layers: int = 0) -> tuple[int, ...]:
    """Layers of every model chunk in order, as even as can be.

    Where they do not divide, the first and the last chunk, which hold embedding and head, stay short: 126 layers on 16
    stages are 7, 8, ..., 8, 7 as in Llama 3 405B (arXiv 2407.21783, section 3.3.2); among the others later ones are
    filled first, since earlier stages keep more micro-batches in memory. A multi-token-prediction block and its head
    weigh about two layers, which the last chunk has fewer: 61 layers and a block on 16 stages are 4, ..., 4, 1.
    """
    if num_mtp_layers and num_chunks > 1:
        weight = 2 * num_mtp_layers
        last = max((num_layers + weight) // num_chunks - weight, 0)
        return (*_spread(num_layers - last, num_chunks - 1, [*range(num_chunks - 2, 0, -1), 0]), last)
    return _spread(num_layers, num_chunks, [*range(num_chunks - 2, 0, -1), 0, num_chunks - 1])


def _spread(num_layers: int, num_chunks: int, order: list[int]) -> tuple[int, ...]:
    """Equal shares; what is left over goes to chunks in this order."""
    base, extra = divmod(num_layers, num_chunks)
    sizes = [base] * num_chunks
    for chunk in order[:extra]:
        sizes[chunk] += 1
    return tuple(sizes)
