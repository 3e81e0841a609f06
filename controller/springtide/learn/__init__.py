"""What became of decisions, and why they are what they are."""
