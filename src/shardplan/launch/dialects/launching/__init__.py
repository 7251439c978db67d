"""Launch lines, and the accelerators that they name."""
