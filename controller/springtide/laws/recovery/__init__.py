"""The law of recovery: when a lost SYN or SYN-ACK is sent again, and where the beginning of connections is sent twice
(the reactive and the proactive part of gentle aggression)."""
