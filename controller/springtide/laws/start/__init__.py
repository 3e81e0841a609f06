"""How fast and how wide connections start: the rate and the window that a path has proved, per pair of PoPs and per
client prefix, for edges that pace."""
