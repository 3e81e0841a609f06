"""What bounds more than one section."""

# A decision older than this is dead under any policy: it bounds how far back the controller looks for the last one.
MAX_TTL_S = 86_400
# How far back decisions are read at most.
MAX_HISTORY_S = 2 * MAX_TTL_S
# How far clients are told apart, by IP version (the selective-BBR article).
CLIENT_PREFIX_LENGTH = {4: 24, 6: 56}
# The largest condition on an object's size: 1 GB.
MAX_OBJECT_BYTES = 1_000_000_000
