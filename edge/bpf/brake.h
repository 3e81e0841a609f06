/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An entry whose connections lose steps back. */
#pragma once

#include "address.h"
#include "maps.h"

static __always_inline void begin_anew(struct brake *brake, __u64 now)
{
	brake->since_ns = now;
	brake->exposed = 0;
	brake->lost = 0;
	__builtin_memset(brake->suspects, 0, sizeof(brake->suspects));
}

/* Counts of 1/256 halve once per half life. */
static __always_inline void decay(struct brake *brake, __u64 now, __u64 half_life_ns)
{
	for (int turn = 0; turn < 16; turn++) {
		if (now - brake->since_ns < half_life_ns)
			return;
		brake->since_ns += half_life_ns;
		brake->exposed /= 2;
		brake->lost /= 2;
		for (int index = 0; index < SUSPECTS; index++) {
			brake->suspects[index].exposed /= 2;
			brake->suspects[index].lost /= 2;
		}
	}
	begin_anew(brake, now);
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
	}
	one->exposed += exposed;
	one->lost += lost;
}

/*
 * Whether an arm loses too much. The address that lost most does not count, where the others are half as many as the brake
 * needs: nobody brakes an entry for the others by what happens to themselves. Where it is nearly alone it counts, as there
 * is nobody else to ask, and hardly anybody else who would bear it.
 */
static __always_inline int loses(struct brake *brake, __u32 connections, __u32 permille)
{
	__u32 exposed = 0, lost = 0;

	if (brake->exposed < (__u64)connections * 256)
		return 0;
	for (int index = 0; index < SUSPECTS; index++) {
		if (brake->suspects[index].lost > lost) {
			lost = brake->suspects[index].lost;
			exposed = brake->suspects[index].exposed;
		}
	}
	if (((__u64)brake->exposed - exposed) * 2 < (__u64)connections * 256) {
		exposed = 0;
		lost = 0;
	}
	return ((__u64)brake->lost - lost) * 1000 > (__u64)permille * (brake->exposed - exposed);
}

/*
 * Counts a connection that sent more than the kernel's first window, or that lost of it; the bound's step follows. Those
 * that started before the last step say nothing of the present one.
 */
static __always_inline void judge(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now, int exposed,
				  int lost)
{
	__u32 arm = start->arm & 1, address = end_of(ctx);
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
		exposed = exposed ? 256 : 0;
		lost = lost ? 256 : 0;
		brake->exposed += exposed;
		brake->lost += lost;
		suspect(brake, address, exposed, lost);
		if (loses(brake, start->brake_connections, start->brake_permille)) {
			brake->step += 1;
			begin_anew(brake, now);
			braked = 1;
		}
	}
	bpf_spin_unlock(lock_of(state));
	if (braked) {
		add(state->braked, 1);
		count(BRAKED);
	}
}

/*
 * Exposed as soon as more was sent than without us; lost as soon as a segment of the first flights was sent again. One whose
 * other end has acknowledged nothing says nothing of the path: it may have gone, or never have meant to.
 */
static __always_inline void watch(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now)
{
	__u32 sent = ctx->snd_nxt - start->sequence, resent = ctx->total_retrans - start->resent;
	int exposed = 0, lost = 0;

	if (start->flags & JUDGED || !(start->window || start->rate) || !start->first_us)
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

/* The brake's step of an arm; another round than the one that braked begins anew. */
static __always_inline __u32 step_of(struct state *state, __u32 arm, __s64 round, __u64 now)
{
	__u32 step;

	bpf_spin_lock(lock_of(state));
	if (state->round != round) {
		state->round = round;
		for (int index = 0; index < ARMS; index++) {
			begin_anew(&state->brakes[index], now);
			state->brakes[index].step = 0;
		}
	}
	step = state->brakes[arm & 1].step;
	bpf_spin_unlock(lock_of(state));
	return step;
}
