"""Control laws: pure functions of a round's observations, the policy and the last decisions."""
