"""Decisions that take many searches: how many accelerators, for how long, at what cost."""
