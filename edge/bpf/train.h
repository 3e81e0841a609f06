/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rate at which the path delivers a connection's first segments. The kernel paces none of the first ten
 * (tcp_update_skb_after_send): they leave as one train, and are delivered as fast as the slowest link sends them, whatever rate
 * the connection was given. So every connection shows what the path carries, also that which uses less of it (packet train
 * dispersion: Dovrolis, Ramanathan, Moore, INFOCOM 2001).
 */
#pragma once

#include "maps.h"

/* Segments that the kernel sends at once, at any rate (tcp_update_skb_after_send); and fewer than these say little. */
#define TRAIN 10
#define LEAST_TRAIN 4

static __always_inline __u32 delivered_by(struct bpf_sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp ? tcp->delivered : 0;
}

/*
 * By the kernel's own times, so that it does not matter when this is called, before an acknowledgement is read or after:
 * when the last of what was delivered came, and when it had been sent. Differences of what wraps are right.
 */
static __always_inline void note_train(struct bpf_sock_ops *ctx, struct bpf_sock *sk, struct start *start)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 delivered, acked, came_us, sent_us, took_us, quiet_us, rtt_us;

	/* Bytes sent twice fill the path twice. */
	if (!tcp || start->train_over || start->copied_bytes)
		return;
	delivered = tcp->delivered - start->train_base;
	acked = ctx->bytes_acked;
	came_us = tcp->delivered_mstamp;
	sent_us = tcp->first_tx_mstamp;
	if (!delivered || delivered == start->train_seen)
		return;
	took_us = came_us - start->train_first_us;
	quiet_us = came_us - start->train_seen_us;
	/*
	 * After a gap it may be of what was paced that so many were delivered; and what comes late at the end was
	 * acknowledged late (RFC 1122, 4.2.3.2).
	 */
	if (delivered > TRAIN || tcp->sacked_out || (start->train_bytes && quiet_us > 2 * start->train_us)) {
		start->train_over = 1;
		return;
	}
	rtt_us = ctx->rtt_min && ctx->rtt_min < start->srtt_us ? ctx->rtt_min : start->srtt_us;
	/* The path made nothing of what follows a pause, or was sent no faster than it came: a train begins with it. */
	if (!start->train_seen || quiet_us > rtt_us / 2 || 2 * (sent_us - start->train_sent_us) > took_us) {
		start->train_first = delivered;
		start->train_first_bytes = acked;
		start->train_first_us = came_us;
		start->train_sent_us = sent_us;
	} else if (delivered - start->train_first >= LEAST_TRAIN && acked - start->train_first_bytes > start->train_bytes) {
		start->train_bytes = acked - start->train_first_bytes;
		start->train_us = took_us;
	}
	start->train_seen_us = came_us;
	start->train_seen = delivered;
	if (delivered >= TRAIN)
		start->train_over = 1;
}
