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
    most_ms: int = tunable(
        700,
        "Largest timeout that is given, milliseconds. A slower path keeps the kernel's second.",
        source="saves at least 300 ms of a lost SYN; a SYN-ACK's is a third longer",
        ge=50,
        le=1000,
    )
    hysteresis: float = tunable(
        0.2,
        "Share by which a timeout must be too long before it is made shorter. A longer one is given at once.",
        source="the quantile of some hundred round trips moves by as much",
        ge=0,
        le=0.9,
    )
    spurious_share: float = tunable(
        0.01,
        "Share of a path's handshakes that may be sent again in vain, beyond that of the tenth that keeps the second.",
        source="the quantile: one round trip in a hundred is longer",
        ge=0.001,
        le=0.5,
    )
