"""Figures of the pages as plain plotly figures: data and layout that charts.js draws in the colours of the page."""
