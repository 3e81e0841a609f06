/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes on a connection's first flights, and the record that it leaves as it closes. */
#pragma once

#include "address.h"
#include "maps.h"

static __always_inline __u32 since(struct start *start, __u64 now)
{
	__u64 us = (now - start->at_ns) / 1000;

	return us == 0 ? 1 : us < ~0U ? us : ~0U;
}

/* When so many bytes were acknowledged, of which the last look saw fewer. */
static __always_inline __u32 moment(struct start *start, __u64 acked, __u32 us, __u32 bytes)
{
	/* Before the first acknowledgement was a round trip without any. */
	if (!start->seen_us)
		return us;
	return start->seen_us + (__u64)(us - start->seen_us) * (bytes - start->seen_bytes) / (acked - start->seen_bytes);
}

static __always_inline void note_times(struct start *start, __u64 acked, __u32 us)
{
	if (start->acked_100k_us || acked <= start->seen_bytes)
		return;
	if (!start->first_us)
		start->first_us = us;
	if (!start->acked_10k_us && acked >= 10000)
		start->acked_10k_us = moment(start, acked, us, 10000);
	if (!start->acked_50k_us && acked >= 50000)
		start->acked_50k_us = moment(start, acked, us, 50000);
	if (acked >= 100000)
		start->acked_100k_us = moment(start, acked, us, 100000);
	start->seen_us = us;
	start->seen_bytes = acked;
}

static __always_inline void leave_record(struct bpf_sock_ops *ctx, struct bpf_sock *sk, struct start *start, __u64 now)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct record *record;

	if (!tcp)
		return;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		count(TOTAL_RECORDS_LOST);
		return;
	}
	record->netns = tcp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum;
	record->cookie = bpf_get_socket_cookie(ctx);
	record->closed_ns = bpf_ktime_get_boot_ns();
	record->generation = start->generation;
	record->round = start->round;
	record->acked_bytes = ctx->bytes_acked - start->acked;
	local_of(ctx, record->local);
	remote_of(ctx, record->remote);
	record->local_port = ctx->local_port;
	record->remote_port = bpf_ntohl(ctx->remote_port);
	record->length = start->entry.length;
	record->window = start->window;
	record->rate = start->rate;
	record->at_once = start->at_once;
	record->first_resent = start->first_resent;
	record->first_segments = start->first_segments;
	record->resent = ctx->total_retrans - start->resent;
	record->segments = ctx->data_segs_out;
	record->handshake_us = start->srtt_us;
	record->min_rtt_us = ctx->rtt_min;
	record->first_us = start->first_us;
	record->acked_10k_us = start->acked_10k_us;
	record->acked_50k_us = start->acked_50k_us;
	record->acked_100k_us = start->acked_100k_us;
	record->lifted_us = start->lifted_us;
	record->lived_us = since(start, now);
	record->train_bytes = start->train_bytes;
	record->train_us = start->train_us;
	record->arm = start->arm;
	record->step = start->step;
	record->flags = start->flags;
	record->layout = LAYOUT;
	record->handshake_timeout_ms = start->handshake_timeout_ms;
	record->handshake_resent = start->resent < 255 ? start->resent : 255;
	record->padding = 0;
	record->copied_bytes = start->copied_bytes;
	record->copied_segments = start->copied_segments < 65535 ? start->copied_segments : 65535;
	record->dsack_dups = tcp->dsack_dups;
	bpf_ringbuf_submit(record, 0);
	count(TOTAL_RECORDS);
}
