"""Samples become rows, and a round's rows become what the control laws read."""
