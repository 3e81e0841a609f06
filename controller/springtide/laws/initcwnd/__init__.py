"""The initial congestion window of each ordered pair of PoPs (Riptide)."""
