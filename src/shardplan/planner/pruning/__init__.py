"""Searches that price only the plans that an answer can need."""
