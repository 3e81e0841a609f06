"""Measures how calm the control laws are: simulated paths over days, ours beside the naive ones (`make calm`).

`paths` makes what a fleet's paths might do; `controllers` are the laws of initial windows. `simulate` plays them
against each other and counts changes, harm and gain; `pairs` is the bench, `plot` draws it. `prefixes` is the same for
the law of client prefixes, `guard` for the loss guard. `start_weeks` plays the law of starts (`start_controllers`) over
`start_paths`. `flights` models what connections meet there, through `start_flights`; `measured` holds it against the
lab.
"""
