"""Commands of the web app."""
