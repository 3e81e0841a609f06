/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Addresses of both families in one form, and what the maps know of them. */
#pragma once

#include <bpf/bpf_endian.h>

#include "maps.h"

#define AF_INET 2

/* The value is computed here and not merged with another: the verifier takes loads from the context only as written. */
#define keep(value) asm volatile("" : "+r"(value))

static __always_inline void mapped(int four, __u32 ip4, __u32 a, __u32 b, __u32 c, __u32 d, __u32 address[4])
{
	address[0] = four ? 0 : a;
	address[1] = four ? 0 : b;
	address[2] = four ? bpf_htonl(0xffff) : c;
	address[3] = four ? ip4 : d;
}

static __always_inline void remote_of(struct bpf_sock_ops *ctx, __u32 address[4])
{
	__u32 a = ctx->remote_ip6[0], b = ctx->remote_ip6[1], c = ctx->remote_ip6[2], d = ctx->remote_ip6[3];
	__u32 ip4 = ctx->remote_ip4;

	keep(a);
	keep(b);
	keep(c);
	keep(d);
	keep(ip4);
	mapped(ctx->family == AF_INET, ip4, a, b, c, d, address);
}

static __always_inline void local_of(struct bpf_sock_ops *ctx, __u32 address[4])
{
	__u32 a = ctx->local_ip6[0], b = ctx->local_ip6[1], c = ctx->local_ip6[2], d = ctx->local_ip6[3];
	__u32 ip4 = ctx->local_ip4;

	keep(a);
	keep(b);
	keep(c);
	keep(d);
	keep(ip4);
	mapped(ctx->family == AF_INET, ip4, a, b, c, d, address);
}

/* The entry of the longest prefix that has the address `prefix` is left with. */
static __always_inline struct entry *find(struct bpf_sock_ops *ctx, struct prefix *prefix)
{
	__u32 zero = 0;
	void *entries = bpf_map_lookup_elem(&bundle, &zero);

	if (!entries)
		return 0;
	prefix->length = 128;
	remote_of(ctx, prefix->address);
	return bpf_map_lookup_elem(entries, prefix);
}

static __always_inline int is_of(struct own_side *side, __u32 address[4], __u32 port)
{
	return (!side->port || side->port == port) && (address[0] & side->mask[0]) == side->address[0] &&
	       (address[1] & side->mask[1]) == side->address[1] && (address[2] & side->mask[2]) == side->address[2] &&
	       (address[3] & side->mask[3]) == side->address[3];
}

/* Whether the bundle of an entry leaves connections of this host's address and port alone. */
static __always_inline int is_left_alone(struct bpf_sock_ops *ctx, __u32 slot)
{
	struct left_alone *alone = bpf_map_lookup_elem(&left_alone, &slot);
	__u32 address[4], port = ctx->local_port;

	if (!alone || !alone->count)
		return 0;
	local_of(ctx, address);
	for (__u32 at = 0; at < OWN_SIDES; at++) {
		if (at >= alone->count)
			return 0;
		if (is_of(&alone->sides[at], address, port))
			return 1;
	}
	return 0;
}

/* An address becomes its network's. */
static __always_inline void cut(struct prefix *prefix, __u32 length)
{
	prefix->length = length;
	for (int word = 0; word < 4; word++) {
		__u32 from = word * 32;

		if (length <= from)
			prefix->address[word] = 0;
		else if (length < from + 32)
			prefix->address[word] &= bpf_htonl(~0U << (from + 32 - length));
	}
}

static __always_inline struct state *known(struct prefix *prefix)
{
	return bpf_map_lookup_elem(&states, prefix);
}

static __always_inline struct state *state_of(struct prefix *prefix)
{
	struct state *state = known(prefix);

	if (state)
		return state;
	bpf_map_update_elem(&states, prefix, no_state, BPF_NOEXIST);
	return known(prefix);
}
