"""Commands that fit constants."""
