"""Answers of the published methods as text."""
