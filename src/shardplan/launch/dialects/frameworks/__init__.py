"""Frameworks whose files are read by a module each, beside those of Megatron Core."""
