"""How soon a lost SYN or SYN-ACK is sent again (gentle aggression's reactive part)."""
