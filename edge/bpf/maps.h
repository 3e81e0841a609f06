/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps, and how the program counts. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

/* The kernel's own structs as far as they are read (CO-RE). */
struct ns_common {
	__u32 inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct sock_common {
	possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct inet_sock {
	struct sock sk;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} __attribute__((preserve_access_index));

struct tcp_options_received {
	__u16 sack_ok : 3;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 write_seq;
	__u32 delivered;
	__u32 sacked_out;
	__u32 dsack_dups;
	__u32 total_retrans;
	struct tcp_options_received rx_opt;
	__u64 delivered_mstamp;
	__u64 first_tx_mstamp;
} __attribute__((preserve_access_index));

struct trie {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	/* Sizes: clang 14 leaves the types out that only an inner map names. */
	__uint(key_size, sizeof(struct prefix));
	__uint(value_size, sizeof(struct entry));
};

/* One slot for both families: a swap is one write, and a connection sees a whole bundle, the old or the new. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct trie);
} bundle SEC(".maps");

/* The entries of a trie name their slot; another one is filled before the swap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct left_alone);
} left_alone SEC(".maps");

/* Connections that were. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} opted_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct about);
} about SEC(".maps");

/*
 * Made at a prefix's first connection: most prefixes of a bundle see none for long, and a million of them would cost
 * memory for nothing. Not per CPU: the budget needs one number for all of them, so its cache line moves anyway, a few
 * times per connection.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct start);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOTALS);
	__type(key, __u32);
	__type(value, __u64);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copying);
} copying SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Packets of which parity is to be sent (struct sent, and their bytes); nobody reads them where no such service runs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(int));
	__uint(value_size, sizeof(int));
} parity SEC(".maps");

/* Has the compiler describe (BTF) what no map names, so that a test finds it. The section is none that becomes a map. */
const struct {
	struct entry entry;
	struct record record;
	struct sent sent;
	enum total total;
} *described SEC(".types");

static const __u8 no_state[sizeof(struct state)];

#define add(counter, number) __sync_fetch_and_add(&(counter), number)

static __always_inline void count_more(enum total which, __u64 number)
{
	__u32 key = which;
	__u64 *counter = bpf_map_lookup_elem(&totals, &key);

	if (counter)
		*counter += number;
}

static __always_inline void count(enum total which)
{
	count_more(which, 1);
}

static __always_inline void count_opted_out(void)
{
	__u32 zero = 0;
	__u64 *counter = bpf_map_lookup_elem(&opted_out, &zero);

	if (counter)
		*counter += 1;
}

static __always_inline struct about *about_all(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&about, &zero);
}

static __always_inline int draining(void)
{
	struct about *one = about_all();

	return one && one->draining;
}

/*
 * Callbacks are not needed any more. Whose they are too cannot be seen: one that another program wanted before stays, and all
 * stay where another program may have come since.
 */
static __always_inline void forgo(struct bpf_sock_ops *ctx, struct start *start, __u32 flags)
{
	struct about *one = about_all();

	if (one && !one->others)
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags & ~(flags & ~start->others));
}

/*
 * An element of an array in a map's value; `mask` is its last index, or the next number of ones only. Linux 6.1 and older forget
 * the bounds of a number that was on the stack: the index is masked and added where clang can neither drop the mask nor keep
 * the number for later.
 */
static __always_inline void *element(void *array, __u64 index, __u64 mask, __u64 size)
{
	asm volatile("%[index] &= %[mask]\n\t"
		     "%[index] *= %[size]\n\t"
		     "%[array] += %[index]"
		     : [array] "+r"(array), [index] "+r"(index)
		     : [mask] "i"(mask), [size] "i"(size));
	return array;
}
