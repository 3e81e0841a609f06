"""The effect of decisions, and the reasons for them."""
