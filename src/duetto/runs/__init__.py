"""The user's interface to runs: start one, resume it, read what it left, load its agent."""
