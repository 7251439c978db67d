"""Predictions held against measured training runs: reading them, posing them as questions, errors, ranking."""
