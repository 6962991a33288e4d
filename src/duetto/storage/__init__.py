"""A run's folder: its config, its logs, its checkpoints; nothing in it is lost, and nothing in it is trusted unread."""
