/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many connections share the rate of an entry. */
#pragma once

#include "maps.h"

/*
 * The budget. `enter` and `leave` are called with the lock held. A connection counts in the period in which it entered:
 * what never left (the program was gone when it closed) is forgotten with its period, and so is one that does nothing.
 */
static __always_inline __u32 enter(struct state *state, __u32 period)
{
	struct flights *mine = &state->flights[period % PERIODS];
	__u32 live = 0, most = 0;

	if (mine->period != period) {
		mine->period = period;
		mine->live = 0;
		mine->most = 0;
	}
	mine->live += 1;
	for (int index = 0; index < PERIODS; index++) {
		struct flights *one = &state->flights[index];

		if (period - one->period >= PERIODS)
			continue;
		live += one->live;
		if (one->most > most)
			most = one->most;
	}
	if (live > mine->most)
		mine->most = live;
	return live > most ? live : most;
}

/* What `enter` would find, for one that has nothing to send yet: it takes no part of the rate from the others. */
static __always_inline __u32 expected(struct state *state, __u32 period)
{
	__u32 live = 1, most = 0;

	for (int index = 0; index < PERIODS; index++) {
		struct flights *one = &state->flights[index];

		if (period - one->period >= PERIODS)
			continue;
		live += one->live;
		if (one->most > most)
			most = one->most;
	}
	return live > most ? live : most;
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
	bpf_spin_lock(lock_of(state));
	leave(state, start->period);
	bpf_spin_unlock(lock_of(state));
}

/* Connections that are in their first flights now. With the lock held. */
static __always_inline __u32 live_now(struct state *state, __u32 period)
{
	__u32 live = 0;

	for (int index = 0; index < PERIODS; index++) {
		struct flights *one = &state->flights[index];

		if (period - one->period < PERIODS)
			live += one->live;
	}
	return live;
}

/*
 * Counts it in the present period; how many are in their first flights with it. What was most at once lately decides as
 * long as nothing was sent.
 */
static __always_inline __u32 enter_budget(struct start *start, struct state *state, __u32 period)
{
	__u32 live, most;

	bpf_spin_lock(lock_of(state));
	if (start->flags & COUNTED)
		leave(state, start->period);
	most = enter(state, period);
	live = live_now(state, period);
	bpf_spin_unlock(lock_of(state));
	start->period = period;
	start->flags |= COUNTED;
	if (!start->at_once) {
		start->at_once = most;
		return most;
	}
	return live;
}
