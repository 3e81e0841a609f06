/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An entry whose connections lose steps back. */
#pragma once

#include "maps.h"

/* Counts of 1/256 halve once per half life. */
static __always_inline void decay(struct brake *brake, __u64 now, __u64 half_life_ns)
{
	for (int turn = 0; turn < 16; turn++) {
		if (now - brake->since_ns < half_life_ns)
			return;
		brake->since_ns += half_life_ns;
		brake->exposed /= 2;
		brake->lost /= 2;
	}
	brake->since_ns = now;
	brake->exposed = 0;
	brake->lost = 0;
}

/*
 * Counts a connection that sent more than the kernel's first window, or that lost of it; the bound's step follows. Those
 * that started before the last step say nothing of the present one.
 */
static __always_inline void judge(struct start *start, struct state *state, __u64 now, int exposed, int lost)
{
	__u32 arm = start->arm & 1;
	struct brake *brake = &state->brakes[arm];
	int braked = 0;

	if (exposed) {
		add(state->exposed[arm], 1);
		count(EXPOSED_TOTAL);
	}
	if (lost) {
		add(state->lost[arm], 1);
		count(LOST_TOTAL);
	}
	if (!start->brake_connections || !start->half_life_ns)
		return;
	bpf_spin_lock(lock_of(state));
	if (state->round == start->round && brake->step == start->step && brake->step < 2) {
		decay(brake, now, start->half_life_ns);
		brake->exposed += exposed ? 256 : 0;
		brake->lost += lost ? 256 : 0;
		if (brake->exposed >= (__u64)start->brake_connections * 256 &&
		    (__u64)brake->lost * 1000 > (__u64)start->brake_permille * brake->exposed) {
			brake->step += 1;
			brake->exposed = 0;
			brake->lost = 0;
			braked = 1;
		}
	}
	bpf_spin_unlock(lock_of(state));
	if (braked) {
		add(state->braked, 1);
		count(BRAKED);
	}
}

/* The brake's step of an arm; another round than the one that braked begins anew. */
static __always_inline __u32 step_of(struct state *state, __u32 arm, __s64 round, __u64 now)
{
	__u32 step;

	bpf_spin_lock(lock_of(state));
	if (state->round != round) {
		state->round = round;
		for (int index = 0; index < ARMS; index++) {
			struct brake *brake = &state->brakes[index];

			brake->since_ns = now;
			brake->exposed = 0;
			brake->lost = 0;
			brake->step = 0;
		}
	}
	step = state->brakes[arm & 1].step;
	bpf_spin_unlock(lock_of(state));
	return step;
}
