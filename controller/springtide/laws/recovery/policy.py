"""Policy of recovery: the tunables of handshakes."""

from __future__ import annotations

from springtide.section import Section, tunable


class RecoveryPolicy(Section):
    """How soon a lost SYN or SYN-ACK is sent again (the paper on gentle aggression), on edges that enforce by bpf."""

    handshake: bool = tunable(
        False,
        "Whether paths get a timeout of their own. A connection to a host that does not answer then fails sooner too: "
        "the kernel tries as often as before.",
        source="off: it departs from RFC 6298, which asks for a second where nothing is known",
    )
    window_rounds: int = tunable(
        12,
        "Rounds whose handshakes count, the present one included. A timeout outlives its last evidence by as long, and "
        "where one did harm nothing is given for as long; twice as long each time that it is within a day.",
        source="an hour of five-minute rounds: most prefixes see few connections in one",
        ge=1,
        le=288,
    )
    min_connections: int = tunable(
        100,
        "Handshakes that these rounds must show of a path.",
        source="of 100 the 99 % quantile is the second largest",
        ge=10,
        le=1_000_000,
    )
    margin: float = tunable(
        1.5,
        "Timeout as a multiple of the 99 % quantile of handshakes' round trips, on the edge where it is largest.",
        source="at 100 ms a lost SYN costs 150 ms instead of 1000, a lost SYN-ACK 200; below 1 each SYN is sent twice",
        ge=1.1,
        le=5,
    )
