"""How calm the control laws are: simulated paths over days, our law and the naive ones side by side (`make calm`).

`paths` makes what a fleet's paths might do, `controllers` are the laws, `run` plays them against each other and counts
changes, harm and gain, `plot` draws it.
"""
