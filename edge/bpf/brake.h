/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An entry whose connections lose steps back, and asks there what the kernel's default loses. It must act within dozens of
 * connections, also while no user space runs, so what follows from counts is decided here:
 *
 *   loses     too many lose, by the bundle's number of connections and share of losses; one address alone brakes nobody else
 *   is_worse  they lose more than the default was seen to lose, if that is known
 *   excuse    the default loses as much: a brake is taken back
 *   most_of_  how much one flight may claim
 *
 * The bundle's two numbers, the half life and what the default is known to lose come with the settings and the entry.
 */
#pragma once

#include "losses.h"

/* The kernel's own first window (RFC 6928), segments: more than that is sent only because of us. */
#define KERNEL_WINDOW 10

/* Segments sent again that one flight is taken for at most. */
#define MOST_RESENT 4096

/* So long, in seconds, flights that are beside the default may keep the brake in doubt. */
#define GRACE_S 10

static __always_inline void enter_step(struct brake *brake, __u32 step, __u64 now)
{
	brake->step = step;
	brake->changed_ns = now;
	brake->doubted_s = 0;
	begin_anew(brake, now);
}

/* As many as the brake needs, as they are counted. */
static __always_inline __u64 needed(__u32 connections)
{
	return (__u64)connections * ONE;
}

/* Half as many. */
static __always_inline int enough(struct tally *tally, __u32 connections)
{
	return tally->flights * 2 >= needed(connections);
}

/* Whether those beside the address that lost most are half as many as the brake needs. */
static __always_inline int has_others(struct brake *brake, __u32 connections)
{
	return ((__u64)brake->exposed - most_lost(brake).exposed) * 2 >= needed(connections);
}

/*
 * Whether an arm loses too much. The address that lost most does not count, where it has others beside it: nobody brakes an
 * entry for the others by what happens to themselves. Where it is nearly alone it counts, as there is nobody else to ask, and
 * hardly anybody else who would bear it.
 */
static __always_inline int loses(struct brake *brake, __u32 connections, __u32 permille)
{
	struct suspect one = {};

	if (brake->exposed < needed(connections))
		return 0;
	if (has_others(brake, connections))
		one = most_lost(brake);
	return ((__u64)brake->lost - one.lost) * 1000 > (__u64)permille * (brake->exposed - one.exposed);
}

/*
 * Losses of the default's flights, but for the address that sent most again, where there are others: nobody takes a brake back
 * for them. It may be alone for a moment, as those who are first at the default are; where others were seen to lose, that shows
 * nothing.
 */
static __always_inline struct tally of_default(struct brake *brake, int others)
{
	struct tally rest = brake->tallies[BY_DEFAULT], most = {};

	if (!others)
		return brake->crowded ? most : rest;
	for (int index = 0; index < SUSPECTS; index++) {
		if (brake->suspects[index].by_default.resent > most.resent)
			most = brake->suspects[index].by_default;
	}
	rest.flights -= most.flights;
	rest.resent -= most.resent;
	return rest;
}

/*
 * The kernel's default loses too much as well: nothing is won by the brake where our values lose as much, a quarter more at
 * most. Once per round, as the default is not asked again while our values are in use.
 */
static __always_inline int excuse(struct brake *brake, __u32 connections, int others, __u64 now)
{
	struct tally asked = of_default(brake, others);
	__u64 theirs = mean_of(&asked);

	if (brake->excused || brake->tallies[BY_DEFAULT].flights < needed(connections) || !enough(&asked, connections))
		return 0;
	for (int step = 0; step < BY_DEFAULT; step++) {
		struct tally *ours = &brake->tallies[step];

		if (!enough(ours, connections) || mean_of(ours) * 4 > theirs * 5)
			continue;
		brake->excused = others ? BY_SEVERAL : BY_ONE;
		brake->default_mean = theirs;
		enter_step(brake, step, now);
		/* Earlier losses would hide for long that the path becomes worse. */
		ours->flights = 0;
		ours->resent = 0;
		return 1;
	}
	return 0;
}

/*
 * Whether what loses too much is braked. Where the default was seen to lose as much, only if it loses more than one and a
 * half times that; what one address said that was alone holds while it is. Where too few of the flights are over to tell, it
 * is, after a grace: on a path that has collapsed they last.
 */
static __always_inline int is_worse(struct brake *brake, __u32 connections, int others, __u64 now)
{
	struct tally *ours = tally_of(brake, brake->step & 1);
	/* Never 0, which is no doubt. */
	__u16 seconds = now / 1000000000ULL | 1;

	if (!brake->default_mean || (others && brake->excused == BY_ONE))
		return 1;
	if (enough(ours, connections) && ours->flights * 2 >= brake->exposed) {
		brake->doubted_s = 0;
		return mean_of(ours) * 2 > brake->default_mean * 3;
	}
	if (!brake->doubted_s)
		brake->doubted_s = seconds;
	return (__s16)(seconds - brake->doubted_s) >= GRACE_S;
}

enum verdict { STAYS, STEPS_BACK, RETURNS };

/* Judges what an arm has lost by now. Called with the lock held. */
static __always_inline enum verdict weigh(struct brake *brake, __u32 connections, __u32 permille, __u64 now)
{
	int others;

	if (!loses(brake, connections, permille)) {
		brake->doubted_s = 0;
		return STAYS;
	}
	others = has_others(brake, connections);
	if (brake->step >= BY_DEFAULT)
		return excuse(brake, connections, others, now) ? RETURNS : STAYS;
	if (!is_worse(brake, connections, others, now))
		return STAYS;
	brake->crowded |= others;
	/* From here on as if the default had not been asked: the path is not what it was. */
	brake->default_mean = 0;
	enter_step(brake, brake->step + 1, now);
	return STEPS_BACK;
}

static __always_inline void note(struct state *state, enum verdict verdict)
{
	if (verdict == STEPS_BACK) {
		add(state->braked, 1);
		count(TOTAL_BRAKED);
	} else if (verdict == RETURNS) {
		add(state->excused, 1);
		count(TOTAL_EXCUSED);
	}
}

/* Whether it started at the arm's present step, and since that was entered: others say nothing of it. */
static __always_inline int is_present(struct brake *brake, struct start *start)
{
	return brake->step == start->step && (__s64)(start->at_ns - brake->changed_ns) >= 0;
}

/* Whether the bundle brakes. */
static __always_inline int may_brake(struct start *start)
{
	return start->brake_connections && start->half_life_ns;
}

/*
 * Counts a connection that sent more than the kernel's first window, or that lost of it; the bound's step follows. What the
 * kernel's default does is not counted as ours.
 */
static __always_inline void judge(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now, int exposed,
				  int lost)
{
	__u32 arm = start->arm & 1, address = end_of(ctx);
	struct brake *brake = &state->brakes[arm];
	enum verdict verdict = STAYS;

	if (exposed && !start->control) {
		add(state->exposed[arm], 1);
		count(TOTAL_EXPOSED);
	}
	if (lost && !start->control) {
		add(state->lost[arm], 1);
		count(TOTAL_LOST);
	}
	if (!may_brake(start))
		return;
	bpf_spin_lock(&state->lock);
	if (state->round == start->round && is_present(brake, start)) {
		decay(brake, now, start->half_life_ns);
		exposed = exposed ? ONE : 0;
		lost = lost ? ONE : 0;
		brake->exposed += exposed;
		brake->lost += lost;
		suspect(brake, address, exposed, lost);
		verdict = weigh(brake, start->brake_connections, start->brake_permille, now);
	}
	bpf_spin_unlock(&state->lock);
	note(state, verdict);
}

/*
 * The most that a flight with our values may claim, in 1/256. Where they are compared with the default, nobody brakes by a few
 * that lose hugely; all together still can.
 */
static __always_inline __u64 most_of_ours(struct brake *brake)
{
	return brake->default_mean ? brake->default_mean * 4 + ONE : MOST_RESENT * ONE;
}

/* The most that a flight of the default may claim, in 1/256: nobody takes a brake back by a few that lose hugely. */
static __always_inline __u64 most_of_default(struct brake *brake, __u32 connections)
{
	for (int step = 0; step < BY_DEFAULT; step++) {
		if (enough(&brake->tallies[step], connections))
			return mean_of(&brake->tallies[step]) * 2 + ONE;
	}
	return ONE;
}

/* The first flights of a connection are over; what it lost counts for the step that it started with. */
static __always_inline void tell(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now, __u32 resent)
{
	struct brake *brake = &state->brakes[start->arm & 1];
	__u64 claim = (__u64)(resent < MOST_RESENT ? resent : MOST_RESENT) * ONE, most;
	__u32 step = start->step, address = end_of(ctx);
	enum verdict verdict = STAYS;
	struct tally *ours;

	if (step >= STEPS || !may_brake(start))
		return;
	bpf_spin_lock(&state->lock);
	/* Those of a step that was left and came back would be taken for what it does now. */
	if (state->round == start->round && (brake->step != step || is_present(brake, start))) {
		decay(brake, now, start->half_life_ns);
		most = step == BY_DEFAULT ? most_of_default(brake, start->brake_connections) : most_of_ours(brake);
		if (claim > most)
			claim = most;
		if (step == BY_DEFAULT)
			said_by(brake, address, claim);
		ours = tally_of(brake, step);
		ours->flights += ONE;
		ours->resent += claim;
		verdict = weigh(brake, start->brake_connections, start->brake_permille, now);
	}
	bpf_spin_unlock(&state->lock);
	note(state, verdict);
}

/*
 * Exposed as soon as more was sent than without us; lost as soon as a segment of the first flights was sent again. One whose
 * other end has acknowledged nothing says nothing of the path: it may have gone, or never have meant to.
 */
static __always_inline void watch(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now)
{
	__u32 sent = ctx->snd_nxt - start->sequence, resent = ctx->total_retrans - start->resent;
	int exposed = 0, lost = 0;

	if (start->flags & JUDGED || !(start->window || start->rate || start->control) || !start->first_us)
		return;
	if (!(start->flags & EXPOSED) && sent > KERNEL_WINDOW * ctx->mss_cache) {
		start->flags |= EXPOSED;
		exposed = 1;
	}
	if (start->flags & EXPOSED && !(start->flags & LOST) && resent) {
		start->flags |= LOST;
		lost = 1;
	}
	if (state && (exposed || lost))
		judge(ctx, start, state, now, exposed, lost);
}

/*
 * The brake's step of an arm; another round than the one that braked begins anew, with what the bundle says that the default
 * loses: where that is known, it need not be asked.
 */
static __always_inline __u32 step_of(struct state *state, __u32 arm, __s64 round, __u32 default_resent, __u64 now)
{
	__u32 step;

	bpf_spin_lock(&state->lock);
	if (state->round != round) {
		state->round = round;
		for (int index = 0; index < ARMS; index++) {
			struct brake *brake = &state->brakes[index];

			enter_step(brake, 0, now);
			brake->excused = 0;
			brake->crowded = 0;
			brake->default_mean = default_resent * (ONE / 16);
			__builtin_memset(brake->tallies, 0, sizeof(brake->tallies));
		}
	}
	step = state->brakes[arm & 1].step;
	bpf_spin_unlock(&state->lock);
	return step;
}
