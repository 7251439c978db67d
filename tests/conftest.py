"""Settings that every test shares."""

from hypothesis import settings

# The same examples at every run, so that a failure is the change's own.
# To look for new ones: python -m pytest --hypothesis-profile=thorough
settings.register_profile("repeatable", derandomize=True, max_examples=50, deadline=None, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("repeatable")
