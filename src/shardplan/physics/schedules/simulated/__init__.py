"""Schedules that the simulation alone runs: their orders depend on times, or their bubble has no closed form."""
