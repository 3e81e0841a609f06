// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Filter of the sockets by which the service of parity sees what arrives: the beginnings of connections from hosts that have
 * sent parity lately. All else it never sees. A socket filter, which goes with its socket.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define IPPROTO_TCP 6
#define IPV4_HEADER 20
#define IPV6_HEADER 40
/* No more of a connection has parity: 10 times 16 bits, as entries hold them, and its last packet may be one of GSO. */
#define BEGINNING (11 * 65536)
#define SYN 2
#define WHOLE 0xffffffff

struct flow {
	__u32 from[4];
	__u32 ports;
};

/* Hosts that have sent parity -> CLOCK_BOOTTIME, nanoseconds, until which they count. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__uint(key_size, 16);
	__uint(value_size, 8);
} senders SEC(".maps");

/* Connections from them -> sequence number of their SYN. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, __u32);
} begun SEC(".maps");

SEC("socket")
int springtide_listen(struct __sk_buff *skb)
{
	__u8 ip[IPV6_HEADER], tcp[14];
	struct flow flow = {};
	__u32 header, sequence, *first;
	__u64 *until;

	if (skb->pkt_type != PACKET_HOST)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes_relative(skb, 0, ip, IPV4_HEADER, BPF_HDR_START_NET) || ip[9] != IPPROTO_TCP)
			return 0;
		header = (ip[0] & 15) * 4;
		flow.from[2] = bpf_htonl(0xffff);
		__builtin_memcpy(&flow.from[3], ip + 12, 4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, 0, ip, IPV6_HEADER, BPF_HDR_START_NET) || ip[6] != IPPROTO_TCP)
			return 0;
		header = IPV6_HEADER;
		__builtin_memcpy(flow.from, ip + 8, 16);
	} else {
		return 0;
	}
	until = bpf_map_lookup_elem(&senders, flow.from);
	if (!until || *until < bpf_ktime_get_boot_ns())
		return 0;
	if (bpf_skb_load_bytes_relative(skb, header, tcp, sizeof(tcp), BPF_HDR_START_NET))
		return 0;
	__builtin_memcpy(&flow.ports, tcp, 4);
	sequence = (__u32)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7];
	if (tcp[13] & SYN) {
		bpf_map_update_elem(&begun, &flow, &sequence, BPF_ANY);
		return 0;
	}
	first = bpf_map_lookup_elem(&begun, &flow);
	return first && sequence - *first < BEGINNING ? WHOLE : 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
