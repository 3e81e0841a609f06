// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sends the beginning of connections twice, as their entries say (gentle aggression's proactive part): what one copy loses the
 * other brings, without a wait. A tcx program at the egress of each device.
 *
 * The sockops program has chosen the connections; this one only counts bytes. First transmissions alone are copied: a copy of
 * what is sent again would have its D-SACK undo the sender's response to loss. A copy is a clone, which passes here again
 * without a socket, so that nothing is copied twice, nor what is only forwarded.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "layout.h"
#include "maps.h"

#define IPPROTO_TCP 6
/* From Linux 6.6: the next program of the device decides. */
#define GO_ON -1
#define IPV6_HEADER 40
/* NET_XMIT_CN: it was queued, and the queue dropped another packet. */
#define QUEUED 2

/* Bytes of copies that a CPU may owe, for connections that begin together. */
#define MOST_OWED (256 * 1024)

/* Place of a segment's data in its connection. */
struct segment {
	__u32 sequence;
	__u32 bytes;
};

/* A segment with data; others have no bytes. */
static __always_inline struct segment segment_of(struct __sk_buff *skb)
{
	struct segment found = {};
	__u8 ip[IPV6_HEADER], tcp[13];
	__u32 header, length;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes_relative(skb, 0, ip, 20, BPF_HDR_START_NET) || ip[9] != IPPROTO_TCP)
			return found;
		header = (ip[0] & 15) * 4;
		length = ip[2] << 8 | ip[3];
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, 0, ip, IPV6_HEADER, BPF_HDR_START_NET) || ip[6] != IPPROTO_TCP)
			return found;
		header = IPV6_HEADER;
		length = IPV6_HEADER + (ip[4] << 8 | ip[5]);
	} else {
		return found;
	}
	if (bpf_skb_load_bytes_relative(skb, header, tcp, sizeof(tcp), BPF_HDR_START_NET))
		return found;
	header += (tcp[12] >> 4) * 4;
	found.sequence = (__u32)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7];
	found.bytes = length > header ? length - header : 0;
	return found;
}

/* The settings of the bundle in force; none once it has expired. */
static __always_inline struct settings *settings_in_force(void)
{
	struct about *one = about_all();
	struct settings *common;
	__u32 slot;

	if (!one || one->draining)
		return 0;
	slot = one->slot;
	common = bpf_map_lookup_elem(&settings, &slot);
	return common && bpf_ktime_get_boot_ns() < common->deadline_ns ? common : 0;
}

/* Whether it left. */
static __always_inline int copy(struct __sk_buff *skb, struct copying *mine, __u32 segments)
{
	__u64 cost = (__u64)skb->len * 1000;
	long code;

	if (mine->owed + cost > MOST_OWED * 1000ULL) {
		count(TOTAL_COPIES_REFUSED);
		return 0;
	}
	code = bpf_clone_redirect(skb, skb->ifindex, 0);
	if (code && code != QUEUED) {
		count(TOTAL_COPIES_REFUSED);
		return 0;
	}
	mine->owed += cost;
	count_more(TOTAL_COPIES, segments);
	count_more(TOTAL_COPIED_BYTES, skb->len);
	return 1;
}

/*
 * Data of a connection: what is sent for the first time, and begins where copies are wanted. Nothing more once anything was
 * sent again: the D-SACKs of later copies would undo the sender's response to the loss (tcp_try_undo_dsack). Nothing without
 * SACK: the other end answers a copy with a duplicate acknowledgement, which then counts as a sign of loss.
 */
static __always_inline void copy_data(struct __sk_buff *skb, struct bpf_sock *sk, struct copying *mine)
{
	struct start *start = bpf_sk_storage_get(&starts, sk, 0, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct segment one;
	__u32 segments;

	if (!start || !tcp || start->layout != LAYOUT || !start->copied_bytes ||
	    start->sent_end - start->sequence >= start->copied_bytes)
		return;
	if (tcp->total_retrans != start->resent || !BPF_CORE_READ_BITFIELD(tcp, rx_opt.sack_ok))
		return;
	one = segment_of(skb);
	if (!one.bytes || (__s32)(one.sequence - start->sent_end) < 0)
		return;
	start->sent_end = one.sequence + one.bytes;
	segments = skb->gso_segs ? skb->gso_segs : 1;
	if (copy(skb, mine, segments))
		start->copied_segments += segments;
}

SEC("tcx/egress")
int springtide_copy(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct copying *mine = bpf_map_lookup_elem(&copying, &zero);
	struct bpf_sock *sk = skb->sk, *full;
	struct settings *common;
	__u64 paid;

	if (!mine || !sk)
		return GO_ON;
	common = settings_in_force();
	if (!common)
		return GO_ON;
	paid = (__u64)skb->len * common->copies_permille;
	mine->owed = mine->owed > paid ? mine->owed - paid : 0;
	full = bpf_sk_fullsock(sk);
	if (full) {
		copy_data(skb, full, mine);
	} else if (mine->synack && bpf_get_socket_cookie(skb) == mine->synack) {
		mine->synack = 0;
		copy(skb, mine, 1);
	}
	return GO_ON;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
