"""The law of starts, for edges that pace: connections start at the rate and with the window that a path has proved, per
pair of PoPs and per client prefix."""
