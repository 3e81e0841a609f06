"""The whole chain on one machine, each hop killed once, and the books of what went through it."""
