"""Where questions are answered: a few at once, each client in turn, cut off when nobody waits for them."""
