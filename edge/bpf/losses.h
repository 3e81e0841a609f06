/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Losses of an entry's connections, as the brake counts them: by step, and by the addresses that lost most. Decides nothing. */
#pragma once

#include "address.h"
#include "maps.h"

/* One connection, flight or segment, as it is counted: counts halve again and again. */
#define ONE 256

static __always_inline struct tally *tally_of(struct brake *brake, __u32 step)
{
	return element(brake->tallies, step, 3, sizeof(struct tally));
}

static __always_inline void begin_anew(struct brake *brake, __u64 now)
{
	brake->since_ns = now;
	brake->exposed = 0;
	brake->lost = 0;
	__builtin_memset(brake->suspects, 0, sizeof(brake->suspects));
}

/* Counts halve once per half life. (Another processor's clock reading may be a little later than this one's.) */
static __always_inline void decay(struct brake *brake, __u64 now, __u64 half_life_ns)
{
	for (int turn = 0; turn < 16; turn++) {
		if ((__s64)(now - brake->since_ns) < (__s64)half_life_ns)
			return;
		brake->since_ns += half_life_ns;
		brake->exposed /= 2;
		brake->lost /= 2;
		for (int index = 0; index < SUSPECTS; index++) {
			brake->suspects[index].exposed /= 2;
			brake->suspects[index].lost /= 2;
			brake->suspects[index].by_default.flights /= 2;
			brake->suspects[index].by_default.resent /= 2;
		}
		for (int step = 0; step < STEPS; step++) {
			brake->tallies[step].flights /= 2;
			brake->tallies[step].resent /= 2;
		}
	}
	begin_anew(brake, now);
	__builtin_memset(brake->tallies, 0, sizeof(brake->tallies));
}

/* The other end, as the brake tells ends apart. */
static __always_inline __u32 end_of(struct bpf_sock_ops *ctx)
{
	__u32 address[4];
	__u64 bits;

	remote_of(ctx, address);
	bits = ctx->family == AF_INET ? address[3] : (__u64)address[0] << 32 | address[1];
	bits *= 0x9e3779b97f4a7c15ULL;
	return bits >> 32;
}

/* Where an address is counted: its place, or the one of those that were seen least, in turns. */
static __always_inline void suspect(struct brake *brake, __u32 address, int exposed, int lost)
{
	__u32 place = brake->turn % SUSPECTS, known = 0;
	struct suspect *one;

	for (int index = 0; index < SUSPECTS; index++) {
		one = &brake->suspects[index];
		if (one->address == address && one->exposed + one->lost) {
			place = index;
			known = 1;
		} else if (!known && one->exposed < brake->suspects[place % SUSPECTS].exposed) {
			place = index;
		}
	}
	one = &brake->suspects[place % SUSPECTS];
	if (!known) {
		brake->turn += 1;
		one->address = address;
		one->exposed = 0;
		one->lost = 0;
		__builtin_memset(&one->by_default, 0, sizeof(one->by_default));
	}
	one->exposed += exposed;
	one->lost += lost;
}

/* The address that lost most; nobody's is where none of those that are known did. */
static __always_inline struct suspect most_lost(struct brake *brake)
{
	struct suspect found = {};

	for (int index = 0; index < SUSPECTS; index++) {
		if (brake->suspects[index].lost > found.lost)
			found = brake->suspects[index];
	}
	return found;
}

/* Segments sent again per flight, in 1/256. A flight adds 4096 at most: neither this nor small multiples overflow. */
static __always_inline __u64 mean_of(struct tally *tally)
{
	return tally->flights ? tally->resent * ONE / tally->flights : 0;
}

/* Addresses that are not known any more were seen least. */
static __always_inline void said_by(struct brake *brake, __u32 address, __u64 claim)
{
	for (int index = 0; index < SUSPECTS; index++) {
		struct suspect *one = &brake->suspects[index];

		if (one->address == address && one->exposed) {
			one->by_default.flights += ONE;
			one->by_default.resent += claim;
		}
	}
}
