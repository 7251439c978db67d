"""Launch files of post-training frameworks: read as two pools, and written."""
