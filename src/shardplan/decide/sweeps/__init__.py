"""Sweeps: thousands of questions from one grid, asked by many workers, kept in one folder."""
