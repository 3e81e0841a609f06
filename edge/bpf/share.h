/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Share of its entry's rate that a connection gets, as it starts and as long as it is in its first flights. */
#pragma once

#include "address.h"
#include "budget.h"
#include "maps.h"
#include "socket.h"

/* Segments a round trip that are left to each, however many start. */
#define LEAST_SHARE 2

/* Finalizer of MurmurHash3: each bit of the result depends on all of the seed's and the cookie's. */
static __always_inline __u32 mixed(__u64 value)
{
	value ^= value >> 33;
	value *= 0xff51afd7ed558ccdULL;
	value ^= value >> 33;
	value *= 0xc4ceb9fe1a85ec53ULL;
	return value >> 32;
}

static __always_inline int within(__u32 random, __u32 permille)
{
	return ((__u64)random * 1000) >> 32 < permille;
}

/*
 * A share of the entry's rate: between three and five quarters of an equal one, another in each round trip, because those
 * that start together would otherwise send at the same moments, all of them, more than a short queue holds. (The kernel
 * does not pace a connection's first ten segments, tcp_update_skb_after_send.)
 */
static __always_inline __u32 share(struct bpf_sock_ops *ctx, struct start *start, __u32 rate, __u32 at_once)
{
	__u64 srtt_us = ctx->srtt_us >> 3;
	__u64 least = srtt_us ? (__u64)LEAST_SHARE * ctx->mss_cache * 1000000 / srtt_us : 1;
	__u64 part = rate;

	if (at_once > 1) {
		__u64 ports = ctx->local_port ^ (__u64)ctx->remote_port << 16;
		__u32 spread = mixed(start->at_ns ^ ports ^ start->round_trips) & 127;

		part = part * (192 + spread) / (256 * (__u64)at_once);
	}
	if (start->most_rate && part > start->most_rate)
		part = start->most_rate;
	if (part < least)
		part = least;
	return part < rate ? part : rate;
}

/* A share of the entry's rate; whether the kernel took it. */
static __always_inline int give_rate(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u32 rate,
				     __u64 now)
{
	__u32 part, at_once;

	bpf_spin_lock(&state->lock);
	at_once = expected(state, period_of(now));
	bpf_spin_unlock(&state->lock);
	part = share(ctx, start, rate, at_once);
	if (set_rate(ctx, part)) {
		count(TOTAL_REFUSED_RATE);
		add(state->refused, 1);
		return 0;
	}
	start->rate = part;
	start->whole_rate = rate;
	start->now_rate = part;
	start->flags |= CAPPED;
	return 1;
}

/*
 * A connection that has sent all that it was given needs no part of the rate until it is given more. (The callback comes
 * once a round trip, so the last acknowledgement itself is not seen.) The others share the rate anew: what was most at
 * once lately decides the first round trip only.
 */
static __always_inline __u32 keep_budget(struct bpf_sock_ops *ctx, struct bpf_sock *sk, struct start *start,
					 struct state *state, __u64 now)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 rate, live;

	if (!tcp || !state)
		return 0;
	if (tcp->write_seq == ctx->snd_nxt) {
		leave_budget(start, state);
		return 0;
	}
	live = enter_budget(start, state, period_of(now));
	rate = share(ctx, start, start->whole_rate, live);
	if (rate != start->now_rate && !has_own(ctx, start->now_rate) && !set_rate(ctx, rate))
		start->now_rate = rate;
	return live;
}

/*
 * A segment is about to be sent, with which a connection enters the budget. Others that have started since lower this
 * connection's share at once: nothing else would before its first acknowledgement, and those that start together would
 * have all of the rate, a half, a third. A share rises once a round trip only.
 */
static __always_inline void sending(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tcp;
	struct start *start;
	struct state *state;
	__u32 live, rate, first, period = period_of(bpf_ktime_get_ns());

	if (!sk)
		return;
	start = bpf_sk_storage_get(&starts, sk, 0, 0);
	if (!start)
		return;
	if (!(start->flags & CAPPED)) {
		forgo(ctx, start, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG);
		return;
	}
	if (start->flags & UNANSWERED)
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	state = known(&start->entry);
	/*
	 * A connection with nothing to send takes no part of the rate: whoever opens some and is silent slows nobody down. (One
	 * byte may be the FIN.)
	 */
	if (!tcp || !state || tcp->write_seq - ctx->snd_nxt <= 1)
		return;
	first = !start->at_once;
	if (start->flags & COUNTED) {
		bpf_spin_lock(&state->lock);
		live = crowd_of(state, period).live;
		bpf_spin_unlock(&state->lock);
	} else {
		live = enter_budget(start, state, period);
	}
	rate = share(ctx, start, start->whole_rate, live);
	if ((first || rate < start->now_rate) && !has_own(ctx, start->now_rate) && !set_rate(ctx, rate)) {
		start->now_rate = rate;
		if (first)
			start->rate = rate;
	}
}

/*
 * A segment is not acknowledged in time. Its connection's place in the budget is the others' until it is: whoever asks and does
 * not answer would hold it for as long as the periods count.
 */
static __always_inline void unanswered(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start;

	if (!sk)
		return;
	start = bpf_sk_storage_get(&starts, sk, 0, 0);
	if (!start || !(start->flags & CAPPED))
		return;
	start->flags |= UNANSWERED;
	leave_budget(start, known(&start->entry));
}
