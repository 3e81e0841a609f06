/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Number of connections that share the rate of an entry. */
#pragma once

#include "maps.h"

/* In their first flights: now, and the most at once lately. */
struct crowd {
	__u32 live;
	__u32 most;
};

/*
 * The budget. `crowd_of`, `enter` and `leave` are called with the lock held. A connection counts in the period in which it
 * entered: what never left (the program was gone when it closed) is forgotten with its period, and so is one that does
 * nothing.
 */
static __always_inline struct crowd crowd_of(struct state *state, __u32 period)
{
	struct crowd found = {};

	for (int index = 0; index < PERIODS; index++) {
		struct flights *one = &state->flights[index];

		if (period - one->period >= PERIODS)
			continue;
		found.live += one->live;
		if (one->most > found.most)
			found.most = one->most;
	}
	return found;
}

static __always_inline struct crowd enter(struct state *state, __u32 period)
{
	struct flights *mine = &state->flights[period % PERIODS];
	struct crowd found;

	if (mine->period != period) {
		mine->period = period;
		mine->live = 0;
		mine->most = 0;
	}
	mine->live += 1;
	found = crowd_of(state, period);
	if (found.live > mine->most)
		mine->most = found.live;
	if (found.live > found.most)
		found.most = found.live;
	return found;
}

/* Number that `enter` would find, for one that has nothing to send yet: it takes no part of the rate from the others. */
static __always_inline __u32 expected(struct state *state, __u32 period)
{
	struct crowd found = crowd_of(state, period);

	return found.live + 1 > found.most ? found.live + 1 : found.most;
}

static __always_inline void leave(struct state *state, __u32 period)
{
	struct flights *mine = &state->flights[period % PERIODS];

	if (mine->period == period && mine->live > 0)
		mine->live -= 1;
}

static __always_inline __u32 period_of(__u64 now)
{
	/* Never 0, which an empty place has. */
	return now / PERIOD_NS + 1 + PERIODS;
}

static __always_inline void leave_budget(struct start *start, struct state *state)
{
	if (!(start->flags & COUNTED))
		return;
	start->flags &= ~COUNTED;
	if (!state)
		return;
	bpf_spin_lock(&state->lock);
	leave(state, start->period);
	bpf_spin_unlock(&state->lock);
}

/*
 * Counts it in the present period; how many are in their first flights with it. What was most at once lately decides as
 * long as nothing was sent.
 */
static __always_inline __u32 enter_budget(struct start *start, struct state *state, __u32 period)
{
	struct crowd found;

	bpf_spin_lock(&state->lock);
	if (start->flags & COUNTED)
		leave(state, start->period);
	found = enter(state, period);
	bpf_spin_unlock(&state->lock);
	start->period = period;
	start->flags |= COUNTED;
	if (!start->at_once) {
		start->at_once = found.most;
		return found.most;
	}
	return found.live;
}
