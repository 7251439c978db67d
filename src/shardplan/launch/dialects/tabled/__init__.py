"""Frameworks whose configurations are read by a table of names and a few rules."""
