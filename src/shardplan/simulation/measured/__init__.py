"""Measured steps, read from the files of profilers, and their comparison with the prediction."""
