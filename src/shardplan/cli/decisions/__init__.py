"""Commands that decide: each asks many questions."""
