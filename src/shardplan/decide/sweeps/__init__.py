"""Sweeps: thousands of questions from one grid, answered by many workers, stored in one folder."""
