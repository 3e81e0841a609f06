/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Actions before a connection is established. */
#pragma once

#include "address.h"
#include "maps.h"
#include "share.h"
#include "socket.h"

/* The settings of an entry's bundle; none once it has expired. */
static __always_inline struct settings *in_force(struct entry *entry)
{
	__u32 slot = entry->slot;
	struct settings *common = bpf_map_lookup_elem(&settings, &slot);

	return common && bpf_ktime_get_boot_ns() < common->deadline_ns ? common : 0;
}

/*
 * Whether a connection recovers from loss as the entry says: all but a share do. The draw is by the cookie, which a connection
 * has from its SYN on, and is another one than that of records and trials.
 */
static __always_inline int recovers(struct bpf_sock_ops *ctx, struct entry *entry, struct settings *common)
{
	if (!entry->handshake_timeout_ms && !entry->copied_bytes)
		return 0;
	return !within(mixed((__u64)mixed(bpf_get_socket_cookie(ctx) ^ common->seed) << 32), RECOVERY_CONTROL);
}

/* The SYN-ACK that this CPU sends next leaves twice. Only the first one: for those after it the kernel does not ask. */
static __always_inline void copy_synack(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	struct copying *mine = bpf_map_lookup_elem(&copying, &zero);

	if (mine)
		mine->synack = bpf_get_socket_cookie(ctx);
}

/*
 * A SYN or a SYN-ACK is about to leave; the latter has no socket of its own yet. Where both ends have one timeout and the
 * SYN-ACK is lost, the other's second SYN would come just as it ends: the SYN-ACK would leave twice more, and the kernel then
 * begins with one segment. So a SYN-ACK waits a third longer, which is more than two PoPs' timeouts of one path differ by
 * (core/src/step/recovery), but no longer than the kernel's. The kernel asks for ticks; its timers end up to one early.
 */
static __always_inline void hurry(struct bpf_sock_ops *ctx)
{
	struct prefix prefix;
	struct entry *entry = find(ctx, &prefix);
	struct settings *common;
	__u32 ms;

	if (!entry || entry->flags || draining())
		return;
	common = in_force(entry);
	if (!common || is_left_alone(ctx, entry->slot))
		return;
	if (!recovers(ctx, entry, common))
		return;
	ms = entry->handshake_timeout_ms;
	if (!ctx->is_fullsock) {
		ms += ms / 3;
		if (entry->copied_bytes)
			copy_synack(ctx);
	}
	if (ms && ms < HANDSHAKE_DEFAULT_MS)
		ctx->reply = ((__u64)ms * common->hz + 999) / 1000 + 1;
}

/* A socket may be used again, for another destination: nothing of its last connection acts on the next. */
static __always_inline void forget(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct start *start = sk ? bpf_sk_storage_get(&starts, sk, 0, 0) : 0;

	if (!start)
		return;
	forgo(ctx, start, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
				  BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG);
	bpf_sk_storage_delete(&starts, sk);
}

/*
 * This host opens a connection. The kernel computes the pacing rate from the window when the SYN is acknowledged, before
 * the callback that sets ours (tcp_rcv_synsent_state_process), and not again before data is: it would be that of ten
 * segments. So the window stands there before; what the connection starts with is decided when it is established.
 */
static __always_inline void prepare(struct bpf_sock_ops *ctx)
{
	struct prefix prefix;
	struct entry *entry = find(ctx, &prefix);
	__u32 window;

	if (!entry || entry->flags || !in_force(entry) || is_left_alone(ctx, entry->slot))
		return;
	window = entry->window > entry->trial_window ? entry->window : entry->trial_window;
	if (window && (entry->rate || entry->trial_rate))
		set_window(ctx, window);
}

/* Announces this host's receive window; also for a SYN that has no socket of its own yet. */
static __always_inline void announce(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	struct about *one = bpf_map_lookup_elem(&about, &zero);
	struct prefix prefix;
	struct entry *entry;

	if (!one || !one->receive_windows)
		return;
	entry = find(ctx, &prefix);
	if (entry && !entry->flags && entry->receive_window && in_force(entry) && !is_left_alone(ctx, entry->slot))
		ctx->reply = entry->receive_window;
}
