"""What a user works with: start a run, take one up again, look at what it left, take the agent out of it."""
