"""Sections that answers about a plan share."""
