"""Finds what is wrong with a host or a site, and says what to do: one file a group of checks.

Each file has `gather`, which does the I/O, and `check`, a pure function from what it gathered to findings. `examine`
puts the groups in the order in which one blocks the next.
"""
