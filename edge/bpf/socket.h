/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Settings of a connection's socket. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_MAX_PACING_RATE 47
#define TCP_CONGESTION 13
#define NO_CAP (~0U)

static __always_inline int set_rate(struct bpf_sock_ops *ctx, __u32 rate)
{
	return bpf_setsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

/* Whether the application has set another cap than the one that we know of. */
static __always_inline int has_own(struct bpf_sock_ops *ctx, __u32 known_rate)
{
	__u32 rate = known_rate;

	/* Where an older kernel does not let it be read, it is taken for ours: a cap that stays would be worse. */
	return !bpf_getsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) && rate != known_rate;
}

static __always_inline int set_window(struct bpf_sock_ops *ctx, __u32 window)
{
	int wanted = window;

	return bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &wanted, sizeof(wanted));
}
