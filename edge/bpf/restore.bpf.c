// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Effect of withdrawal on open connections, as an iterator over the sockets of one network namespace: a cap of ours is lifted
 * always (nobody would do it later), and where `algorithm` names one, a connection that was switched gets that. The set may be of
 * another version: of its storage only what stays where it is in every LAYOUT is read, but for `overdue`.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_MAX_PACING_RATE 47
#define TCP_CONGESTION 13

struct sock_common {
	unsigned short skc_family;
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u64 bytes_acked;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct start);
} starts SEC(".maps");

/*
 * Set before the program is loaded. An empty algorithm leaves that alone. `overdue`: the program that caps stays, and only what
 * it would have lifted long ago goes, had another one not ended its callbacks.
 */
const volatile struct {
	char algorithm[ALGORITHM_NAME];
	__u8 overdue;
} asked = {};

__u64 lifted = 0;
__u64 restored = 0;

SEC("iter/tcp")
int springtide_back(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tcp;
	struct start *start;
	__u32 rate = ~0U, found;
	char name[ALGORITHM_NAME];

	if (!common)
		return 0;
	tcp = bpf_skc_to_tcp_sock(common);
	if (!tcp)
		return 0;
	start = bpf_sk_storage_get(&starts, tcp, 0, 0);
	if (!start)
		return 0;
	found = start->now_rate;
	if (start->flags & CAPPED)
		bpf_getsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &found, sizeof(found));
	if (asked.overdue) {
		/* The cap counts on: whoever ends it, the program or a withdrawal, finds it lifted. */
		if (start->flags & CAPPED && found == start->now_rate &&
		    tcp->bytes_acked - start->acked >= (__u64)start->lift_bytes * CROWDED_LIFT)
			bpf_setsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
		return 0;
	}
	/* Another cap than ours is the application's. */
	if (start->flags & CAPPED &&
	    (found == rate || (found == start->now_rate &&
			       !bpf_setsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate))))) {
		start->flags &= ~CAPPED;
		lifted += 1;
	}
	if (!asked.algorithm[0] || !(start->flags & SWITCHED))
		return 0;
	for (int index = 0; index < ALGORITHM_NAME; index++)
		name[index] = asked.algorithm[index];
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		restored += 1;
	return 0;
}

/* The kernel shows its own structs (tcp_sock) only to programs that say they are compatible with the GPL. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
