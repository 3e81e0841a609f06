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
/* Place of an IPv4 header's checksum. */
#define IPV4_CHECKSUM 10
#define VLAN_TAG 4
/* NET_XMIT_CN: it was queued, and the queue dropped another packet. */
#define QUEUED 2

/* Bytes of copies that a CPU may owe, for connections that begin together. */
#define MOST_OWED (256 * 1024)

/* A packet of a perf ring has a length of 16 bits. */
#define MOST_HANDED 60000
#define PARITY_HEADERS 128
/* linux/net.h: its packets are no traffic of the edge's that pays for copies. */
#define SOCK_RAW 3

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

/*
 * Bytes before the IP header; negative where the device has a link layer that is not known here. The context does not say it, so
 * the header's own bytes are looked for where Ethernet, no link layer or a VLAN tag has them.
 */
static __always_inline int before_ip(struct __sk_buff *skb)
{
	static const int places[] = {ETH_HLEN, 0, ETH_HLEN + VLAN_TAG};
	__u32 header[5], found[5];

	if (bpf_skb_load_bytes_relative(skb, 0, header, sizeof(header), BPF_HDR_START_NET))
		return -1;
	for (int index = 0; index < 3; index++) {
		if (bpf_skb_load_bytes(skb, places[index], found, sizeof(found)))
			continue;
		if (header[0] == found[0] && header[1] == found[1] && header[2] == found[2] && header[3] == found[3] &&
		    header[4] == found[4])
			return places[index];
	}
	return -1;
}

/* The first two bytes of an IP header, with another DSCP; ECN's bits stay. */
static __always_inline __u16 marked(__u16 plain, __u32 dscp)
{
	return plain >> 12 == 4 ? (plain & ~0xfc) | dscp << 2 : (plain & ~0xfc0) | dscp << 6;
}

/* Writes the first two bytes of the IP header, and IPv4's checksum. */
static __always_inline long mark(struct __sk_buff *skb, int at, __u16 from, __u16 to)
{
	__be16 was = bpf_htons(from), is = bpf_htons(to);

	if (from >> 12 == 4 && bpf_l3_csum_replace(skb, at + IPV4_CHECKSUM, was, is, sizeof(is)))
		return -1;
	return bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0);
}

/* A clone that leaves by the same device with this DSCP, or with that of its connection. */
static __always_inline long clone(struct __sk_buff *skb, __u32 dscp)
{
	__be16 first;
	__u16 plain;
	long code;
	int at;

	if (!dscp)
		return bpf_clone_redirect(skb, skb->ifindex, 0);
	at = before_ip(skb);
	if (at < 0 || bpf_skb_load_bytes(skb, at, &first, sizeof(first)))
		return -1;
	plain = bpf_ntohs(first);
	if (mark(skb, at, plain, marked(plain, dscp)))
		return -1;
	code = bpf_clone_redirect(skb, skb->ifindex, 0);
	mark(skb, at, marked(plain, dscp), plain);
	return code;
}

/* Whether the owed bytes grow by so many, in 1/1000. */
static __always_inline int has_room(struct copying *mine, __u64 cost)
{
	if (mine->owed + cost > MOST_OWED * 1000ULL) {
		count(TOTAL_COPIES_REFUSED);
		return 0;
	}
	return 1;
}

/* Whether it left. */
static __always_inline int copy(struct __sk_buff *skb, struct copying *mine, __u32 segments, __u32 dscp)
{
	__u64 cost = (__u64)skb->len * 1000;
	long code;

	if (!has_room(mine, cost))
		return 0;
	code = clone(skb, dscp);
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
 * Hands a packet to the service that sends parity. What it pays for is the most that this may cost: each group that is open
 * may be closed behind it.
 */
static __always_inline void hand_over(struct __sk_buff *skb, struct copying *mine, __u32 segments, __u32 every, __u32 dscp)
{
	struct sent sent = {.leaves_ns = skb->tstamp, .segment_bytes = skb->gso_size, .every = every, .dscp = dscp};
	__u32 most = segments / every + PARITY_GROUPS;
	/* With parity's own headers, and for the two blocks that a segment of unknown size may be in. */
	__u64 cost = ((__u64)skb->len / segments + PARITY_HEADERS) * 1000 * (segments < most ? segments : most) +
		     PARITY_HEADERS * 1000;
	__u64 handed = skb->len < MOST_HANDED ? skb->len : MOST_HANDED;
	int at = before_ip(skb);

	if (!has_room(mine, cost))
		return;
	sent.ip_at = at;
	if (at < 0 || bpf_perf_event_output(skb, &parity, BPF_F_CURRENT_CPU | handed << 32, &sent, sizeof(sent)))
		count(TOTAL_COPIES_REFUSED);
	else
		mine->owed += cost;
}

/*
 * Data of a connection: what is sent for the first time, and begins where copies are wanted. No copies once anything was
 * sent again: the D-SACKs of later copies would undo the sender's response to the loss (tcp_try_undo_dsack). Nothing without
 * SACK: the other end answers a copy with a duplicate acknowledgement, which then counts as a sign of loss. Parity draws
 * neither where nothing was lost.
 */
static __always_inline void copy_data(struct __sk_buff *skb, struct bpf_sock *sk, struct copying *mine, __u32 dscp)
{
	struct start *start = bpf_sk_storage_get(&starts, sk, 0, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct segment one;
	__u32 segments, every;

	if (!start || !tcp || start->layout != LAYOUT)
		return;
	every = start->parity_every;
	/* So many more bytes have parity for what their copies would cost. */
	if (start->sent_end - start->sequence >= start->copied_bytes * (every ? every : 1))
		return;
	if (!every && (tcp->total_retrans != start->resent || !BPF_CORE_READ_BITFIELD(tcp, rx_opt.sack_ok)))
		return;
	one = segment_of(skb);
	if (!one.bytes || (__s32)(one.sequence - start->sent_end) < 0)
		return;
	start->sent_end = one.sequence + one.bytes;
	segments = skb->gso_segs ? skb->gso_segs : 1;
	if (every)
		hand_over(skb, mine, segments, every, dscp);
	else if (copy(skb, mine, segments, dscp))
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
	full = bpf_sk_fullsock(sk);
	if (full && full->type == SOCK_RAW)
		return GO_ON;
	paid = (__u64)skb->len * common->copies_permille;
	mine->owed = mine->owed > paid ? mine->owed - paid : 0;
	if (full) {
		copy_data(skb, full, mine, common->copies_dscp);
	} else if (mine->synack && bpf_get_socket_cookie(skb) == mine->synack) {
		mine->synack = 0;
		copy(skb, mine, 1, common->copies_dscp);
	}
	return GO_ON;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
