"""Guards in front of the app: who may ask, from which pages, how much at once, and what a browser may do with it."""
