"""Launch scripts and configurations of training frameworks: read, audited and written."""
