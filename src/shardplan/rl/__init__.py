"""Post-training with reinforcement learning: generation, log-probabilities, training and weights on their way."""
