"""Decisions: how many accelerators, for how long, for how much; each asks many questions of the planner."""
