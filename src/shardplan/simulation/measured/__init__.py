"""Measured steps: read from the files of profilers, and laid over the prediction."""
