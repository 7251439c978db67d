"""Renderings of a document: terminal, HTML, records (JSON) and rows (CSV, data frames)."""
