"""What a person sees of a run: progress on a terminal, videos, learning curves."""
