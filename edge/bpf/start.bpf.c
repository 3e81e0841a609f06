// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Start values of new TCP connections: initial window, start rate, congestion control, per destination prefix.
 *
 * A sockops program of a cgroup. User space fills the maps and decides everything; the program looks up, sets, counts. It
 * reads the stable context of sockops and a few fields of struct tcp_sock (CO-RE). What fails is counted and leaves the
 * connection as the kernel made it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "address.h"
#include "before.h"
#include "brake.h"
#include "budget.h"
#include "layout.h"
#include "maps.h"
#include "record.h"
#include "share.h"
#include "socket.h"
#include "train.h"

static __always_inline void switch_algorithm(struct bpf_sock_ops *ctx, struct start *start, struct state *state)
{
	int refused = bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, start->algorithm, ALGORITHM_NAME);

	start->flags |= SWITCHED;
	count(refused ? TOTAL_REFUSED_ALGORITHM : TOTAL_SWITCHED);
	if (state)
		add(*(refused ? &state->refused : &state->switched), 1);
}

/* A cap without its window would only slow a connection down, and a window without its cap is a burst. */
static __always_inline void give(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u32 window,
				 __u32 rate, __u64 now)
{
	__u32 arm = start->arm & 1;

	if (rate && has_own(ctx, NO_CAP))
		count(TOTAL_OWN_RATE);
	else if (rate && !give_rate(ctx, start, state, rate, now))
		return;
	if (window && set_window(ctx, window)) {
		count(TOTAL_REFUSED_WINDOW);
		add(state->refused, 1);
		if (start->flags & CAPPED)
			set_rate(ctx, NO_CAP);
		start->flags &= ~CAPPED;
		start->rate = 0;
	} else {
		start->window = window;
	}
	if (start->window || start->rate) {
		add(state->started[arm], 1);
		count(TOTAL_STARTED);
	}
}

static __always_inline void fill(struct bpf_sock_ops *ctx, struct bpf_sock *sk, struct start *start,
				 struct settings *common, struct entry *entry, struct prefix *prefix, __u64 now)
{
	__u32 algorithm = entry->algorithm;

	__builtin_memset(start, 0, sizeof(*start));
	start->round = common->round;
	start->generation = common->generation;
	start->entry = *prefix;
	start->at_ns = now;
	start->acked = ctx->bytes_acked;
	start->resent = ctx->total_retrans;
	start->sequence = ctx->snd_nxt;
	start->round_end = start->sequence;
	start->srtt_us = ctx->srtt_us >> 3;
	start->train_base = delivered_by(sk);
	start->lift_bytes = common->lift_bytes;
	start->lift_round_trips = common->lift_round_trips;
	start->brake_permille = common->brake_permille;
	start->brake_connections = common->brake_connections;
	start->half_life_ns = common->half_life_ns;
	if (recovers(ctx, entry, common)) {
		start->handshake_timeout_ms = entry->handshake_timeout_ms;
		start->copied_bytes = entry->copied_bytes;
		start->parity_every = entry->parity_every;
	}
	start->sent_end = start->sequence;
	if (algorithm > 0 && algorithm <= ALGORITHMS) {
		start->from_bytes = entry->from_bytes;
		__builtin_memcpy(start->algorithm, common->algorithms[(algorithm - 1) % ALGORITHMS], ALGORITHM_NAME);
	}
}

/* Looks that a connection needs from now on. Last: a dump that comes meanwhile shows nothing instead of half. */
static __always_inline void watch_it(struct bpf_sock_ops *ctx, struct start *start)
{
	int wanted = BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;

	barrier();
	*(volatile __u8 *)&start->layout = LAYOUT;
	if (start->flags & RECORD)
		wanted |= BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG;
	if (start->flags & CAPPED) {
		wanted |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG;
		count(TOTAL_CAPS);
	}
	bpf_sock_ops_cb_flags_set(ctx, start->others | wanted);
}

/* A connection is established. */
static __always_inline void begin(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct prefix prefix;
	struct entry *entry;
	struct settings *common;
	struct start *start;
	struct state *state;
	__u32 slot, window, rate, most, random, leaves_record;
	__u64 now, cookie;

	if (!sk)
		return;
	entry = find(ctx, &prefix);
	if (!entry || entry->flags & NOTHING)
		return;
	slot = entry->slot;
	common = bpf_map_lookup_elem(&settings, &slot);
	if (!common)
		return;
	if (bpf_ktime_get_boot_ns() >= common->deadline_ns) {
		if (!(entry->flags & UNNAMED))
			count(TOTAL_EXPIRED);
		return;
	}
	if (draining())
		return;
	if (entry->flags & LEAVE_ALONE) {
		count(TOTAL_EXCLUDED);
		return;
	}
	if (is_left_alone(ctx, slot)) {
		if (!(entry->flags & UNNAMED))
			count_opted_out();
		return;
	}
	now = bpf_ktime_get_ns();
	cookie = bpf_get_socket_cookie(ctx);
	random = mixed(cookie ^ common->seed);
	leaves_record = within(mixed(cookie ^ ~common->seed), common->record_permille);
	cut(&prefix, entry->length);
	state = entry->flags & UNNAMED ? 0 : state_of(&prefix);
	if (entry->flags & UNNAMED) {
		if (!leaves_record)
			return;
	} else if (!state) {
		count(TOTAL_NO_STATE);
		return;
	}
	start = bpf_sk_storage_get(&starts, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!start) {
		count(TOTAL_NO_MEMORY);
		return;
	}
	fill(ctx, sk, start, common, entry, &prefix, now);
	start->others = ctx->bpf_sock_ops_cb_flags;
	if (leaves_record)
		start->flags |= RECORD;
	if (!state) {
		/* The bundle does not name it: it starts as the kernel made it, and its record shows what the path carries. */
		watch_it(ctx, start);
		return;
	}
	start->arm = within(random, entry->trial_permille);
	window = start->arm ? entry->trial_window : entry->window;
	rate = start->arm ? entry->trial_rate : entry->rate;
	most = start->arm ? entry->trial_connection_rate : entry->connection_rate;
	start->step = step_of(state, start->arm, common->round, entry->default_resent, now);
	start->control = start->step >= BY_DEFAULT && (window || rate) && !start->resent;
	if (start->step) {
		window = start->step == 1 ? window / 2 : 0;
		rate = start->step == 1 ? rate / 2 : 0;
		most /= 2;
	}
	start->most_rate = most;
	if (start->resent) {
		/* The kernel cut the window to one segment for a reason. */
		add(state->late, 1);
		count(TOTAL_LATE);
	} else if (window || rate) {
		give(ctx, start, state, window, rate, now);
	} else {
		add(state->untreated[start->arm & 1], 1);
		count(TOTAL_UNTREATED);
	}
	start->untold = start->control || start->window || start->rate;
	if (start->algorithm[0] && !start->from_bytes)
		switch_algorithm(ctx, start, state);
	watch_it(ctx, start);
}

/* The end of the first flights as the budget and the brake see them. */
static __always_inline void lift(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u32 us)
{
	start->flags &= ~CAPPED;
	start->lifted_us = us;
	start->first_end = ctx->snd_nxt;
	if (!has_own(ctx, start->now_rate))
		set_rate(ctx, NO_CAP);
	count(TOTAL_CAPS_ENDED);
	leave_budget(start, state);
}

/*
 * Whether the cap has held as long as the bundle says; four times as long beside others, because those that started
 * together would be free together, each with a window that the path has for one.
 */
static __always_inline int reached(struct start *start, __u64 acked, __u32 live)
{
	__u32 times = live > 1 ? CROWDED_LIFT : 1;

	return acked >= (__u64)start->lift_bytes * times ||
	       (start->lift_round_trips && start->round_trips >= (__u64)start->lift_round_trips * times);
}

/* The first flights are acknowledged. Where nothing was given they last as long as a cap: so they can be compared. */
static __always_inline int first_over(struct bpf_sock_ops *ctx, struct start *start, __u64 acked)
{
	if (!start->window && !start->rate)
		return reached(start, acked, 1);
	return (__s32)(ctx->snd_una - start->first_end) >= 0;
}

/* Segments sent and those sent again are of the same flights, however long the connection goes on. */
static __always_inline void close_flights(struct bpf_sock_ops *ctx, struct start *start)
{
	start->flags |= JUDGED;
	start->first_resent = ctx->total_retrans - start->resent;
	start->first_segments = ctx->data_segs_out;
}

/*
 * Reports to the brake what was lost, as soon as nothing more counts. Without a rate that is when a cap would have been lifted,
 * with a window and without: it compares them.
 */
static __always_inline void tell_brake(struct bpf_sock_ops *ctx, struct start *start, struct state *state, __u64 now,
				       int closed)
{
	if (!start->untold)
		return;
	if (!closed && !(start->flags & JUDGED && (start->rate || reached(start, ctx->bytes_acked - start->acked, 1))))
		return;
	start->untold = 0;
	if (state && start->flags & EXPOSED)
		tell(ctx, start, state, now, ctx->total_retrans - start->resent);
}

/*
 * A segment has come, which is not read yet: what those before it acknowledged is known. (Not each: acknowledgements that the
 * kernel foresaw, with an unchanged window, are read without asking.)
 */
static __always_inline void received(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start = sk ? bpf_sk_storage_get(&starts, sk, 0, 0) : 0;

	if (!start)
		return;
	note_train(ctx, sk, start);
	if (start->train_over)
		forgo(ctx, start, BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG);
}

/* Once a round trip, as soon as data is acknowledged that was sent since the last time (tcp_rtt_estimator). */
static __always_inline void acknowledged(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start;
	struct state *state;
	__u64 now, acked;
	__u32 us, live;

	if (!sk)
		return;
	start = bpf_sk_storage_get(&starts, sk, 0, 0);
	if (!start)
		return;
	now = bpf_ktime_get_ns();
	us = since(start, now);
	acked = ctx->bytes_acked - start->acked;
	state = known(&start->entry);
	note_times(start, acked, us);
	start->flags &= ~UNANSWERED;
	if ((__s32)(ctx->snd_una - start->round_end) > 0) {
		start->round_trips += 1;
		start->round_end = ctx->snd_nxt;
		if (start->round_trips == 1 && !(start->flags & CAPPED))
			start->first_end = ctx->snd_nxt;
	}
	watch(ctx, start, state, now);
	if (start->flags & CAPPED) {
		live = keep_budget(ctx, sk, start, state, now);
		if (reached(start, acked, live) || draining())
			lift(ctx, start, state, us);
	} else if (!(start->flags & JUDGED) && start->round_trips && first_over(ctx, start, acked)) {
		close_flights(ctx, start);
	}
	tell_brake(ctx, start, state, now, 0);
	if (start->algorithm[0] && !(start->flags & SWITCHED) && acked >= start->from_bytes)
		switch_algorithm(ctx, start, state);
	/* Nothing is left to do: a long flow pays nothing more. */
	if (!(start->flags & JUDGED) || start->untold || (start->algorithm[0] && !(start->flags & SWITCHED)))
		return;
	if (!(start->flags & RECORD) || start->acked_100k_us)
		forgo(ctx, start, BPF_SOCK_OPS_RTT_CB_FLAG);
}

/* One side has said its last: without a look here the last acknowledgement would be seen a round trip later. */
static __always_inline void change(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start = sk ? bpf_sk_storage_get(&starts, sk, 0, 0) : 0;

	if (start)
		note_times(start, ctx->bytes_acked - start->acked, since(start, bpf_ktime_get_ns()));
}

/* The connection is closed, in whatever way. */
static __always_inline void end(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start;
	struct state *state;
	__u64 now;

	if (!sk)
		return;
	start = bpf_sk_storage_get(&starts, sk, 0, 0);
	if (!start)
		return;
	now = bpf_ktime_get_ns();
	state = known(&start->entry);
	note_times(start, ctx->bytes_acked - start->acked, since(start, now));
	note_train(ctx, sk, start);
	watch(ctx, start, state, now);
	if (!(start->flags & JUDGED))
		close_flights(ctx, start);
	tell_brake(ctx, start, state, now, 1);
	leave_budget(start, state);
	if (start->flags & CAPPED) {
		/* The socket may be connected again. */
		if (!has_own(ctx, start->now_rate))
			set_rate(ctx, NO_CAP);
		count(TOTAL_CAPS_ENDED);
	}
	if (start->flags & RECORD)
		leave_record(ctx, sk, start, now);
	/* A reset that is still to be sent must not enter the budget again: nobody would leave it. */
	start->flags &= ~(RECORD | CAPPED);
}

SEC("sockops")
int springtide(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_RWND_INIT:
		announce(ctx);
		break;
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		hurry(ctx);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		forget(ctx);
		prepare(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		begin(ctx);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		acknowledged(ctx);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		received(ctx);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		sending(ctx);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		unanswered(ctx);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] == BPF_TCP_CLOSE)
			end(ctx);
		else
			change(ctx);
		break;
	}
	return 1;
}

/* The kernel shows its own structs (tcp_sock) only to programs that say they are compatible with the GPL. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
