"""Displays of a run for a person: progress on a terminal, videos, learning curves."""
