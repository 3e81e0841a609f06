//! The one table of fields: where the kernel keeps each value and what the contract calls it.
//!
//! The encoder, the JSON and the list that a test holds against the .proto file are all made from it, so that they
//! cannot disagree. Layouts are those of include/uapi/linux/{inet_diag,sock_diag,tcp}.h; a layout is cut into blocks
//! where kernels have ended it, so that one length check lets all of a block's fields be read.

use super::kinds::*;
use super::proto::TcpSample;
use super::value::{Present, Value};
use super::wire::{ROW_LIMIT, RowWriter, Varint};

/// One field of a TcpSample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name in the contract.
    pub name: &'static str,
    /// Its number in the contract.
    pub number: u32,
    /// Its type in the contract; an enum is written as a uint32 is.
    pub type_name: &'static str,
    /// Bytes that it can take in a row, tag included.
    pub limit: usize,
}

macro_rules! layout {
    ($(#[$doc:meta])* $layout:ident { $($end:literal => { $($name:ident: $number:literal, $kind:ty, $at:literal;)* })* }) => {
        $(#[$doc])*
        pub(crate) mod $layout {
            use super::*;

            /// The layout's fields.
            pub(crate) const FIELDS: &[Field] = &[$($(Field {
                name: stringify!($name),
                number: $number,
                type_name: <<$kind as Kind>::Value as Varint>::TYPE,
                limit: <<$kind as Kind>::Value as Varint>::LIMIT,
            },)*)*];

            /// Length of the layout as far as it is known, bytes.
            #[allow(dead_code, reason = "what it asserts is the order; only one length is used")]
            pub(crate) const LEN: usize = { let mut len = 0; $(assert!($end > len); len = $end;)* len };

            /// Appends every field that lies within `bytes`.
            #[inline(always)]
            pub(crate) fn encode(bytes: &[u8], row: &mut RowWriter<'_>) {
                $(
                    let Some(block) = bytes.first_chunk::<$end>() else {
                        $(if let Some(value) = bytes.get($at..$at + <$kind as Kind>::WIDTH) {
                            row.varint::<$number>(<$kind as Kind>::read(value, 0));
                        })*
                        return;
                    };
                    $(row.varint::<$number>(<$kind as Kind>::read(block, $at));)*
                )*
            }

            /// Calls `each` with every field that the sample has.
            pub(crate) fn visit<'a>(sample: &'a TcpSample, each: &mut dyn FnMut(&'static str, Value<'a>)) {
                $($(if let Some(value) = sample.$name.present() {
                    each(stringify!($name), value);
                })*)*
            }
        }
    };
}

macro_rules! by_hand {
    ($(#[$doc:meta])* $part:ident { $($name:ident: $number:literal, $type:literal, $limit:expr;)* }) => {
        $(#[$doc])*
        pub(crate) mod $part {
            use super::*;

            /// The fields.
            pub(crate) const FIELDS: &[Field] =
                &[$(Field { name: stringify!($name), number: $number, type_name: $type, limit: $limit },)*];

            /// Calls `each` with every field that the sample has.
            pub(crate) fn visit<'a>(sample: &'a TcpSample, each: &mut dyn FnMut(&'static str, Value<'a>)) {
                $(if let Some(value) = sample.$name.present() {
                    each(stringify!($name), value);
                })*
            }
        }
    };
}

/// Longest host name: a DNS name's limit, bytes.
pub(crate) const HOST_LIMIT: usize = 253;
/// Longest PoP name, bytes: that of fleet.yaml.
pub(crate) const POP_LIMIT: usize = 63;
/// Length of a boot id, bytes.
pub(crate) const BOOT_ID_LIMIT: usize = 36;
/// Longest algorithm or protocol name: TCP_CA_NAME_MAX and TCP_ULP_NAME_MAX are both 16, bytes.
pub(crate) const NAME_LIMIT: usize = 16;

by_hand! {
    /// Fields without a fixed place in a kernel structure; the encoder writes these itself.
    by_hand {
        time_unix_us: 1, "int64", 11;
        host: 2, "string", 3 + HOST_LIMIT;
        pop: 3, "string", 3 + POP_LIMIT;
        boot_id: 4, "string", 3 + BOOT_ID_LIMIT;
        netns: 5, "uint64", u64::LIMIT;
        poll_sequence: 6, "uint64", u64::LIMIT;
        kind: 8, "uint32", u32::LIMIT;
        src_ip: 10, "bytes", 18;
        dst_ip: 12, "bytes", 18;
        sample_weight: 16, "uint32", u32::LIMIT;
        congestion_algorithm: 26, "string", 3 + NAME_LIMIT;
        ulp_name: 35, "string", 3 + NAME_LIMIT;
        tcp_info_length: 50, "uint32", u32::LIMIT;
    }
}

by_hand! {
    /// Values that a connection started with.
    start {
        started_round: 160, "uint64", u64::LIMIT;
        started_window: 161, "uint32", u32::LIMIT;
        started_rate: 162, "uint32", u32::LIMIT;
        started_arm: 163, "uint32", u32::LIMIT;
        started_step: 164, "uint32", u32::LIMIT;
        copied_segments: 165, "uint32", u32::LIMIT;
    }
}

by_hand! {
    /// Fields that only a record of first flights has, some of them only where it happened.
    flight {
        started_at_once: 170, "uint32", u32::LIMIT;
        started_prefix_length: 171, "uint32", u32::LIMIT;
        first_flight_retrans: 172, "uint32", u32::LIMIT;
        handshake_rtt: 173, "uint32", u32::LIMIT;
        first_acked_time: 174, "uint32", u32::LIMIT;
        acked_10k_time: 175, "uint32", u32::LIMIT;
        acked_50k_time: 176, "uint32", u32::LIMIT;
        acked_100k_time: 177, "uint32", u32::LIMIT;
        cap_lifted_time: 178, "uint32", u32::LIMIT;
        lived_time: 179, "uint32", u32::LIMIT;
        train_bytes: 180, "uint32", u32::LIMIT;
        train_time: 181, "uint32", u32::LIMIT;
        first_flight_segs: 182, "uint32", u32::LIMIT;
        handshake_timeout_ms: 183, "uint32", u32::LIMIT;
        handshake_retrans: 184, "uint32", u32::LIMIT;
        copied_bytes: 185, "uint32", u32::LIMIT;
    }
}

layout! {
    /// struct inet_diag_msg, but for its addresses.
    message {
        72 => {
            family: 17, U8, 0;
            state: 9, U8, 1;
            timer: 18, U8, 2;
            timer_retrans: 19, U8, 3;
            src_port: 11, BigEndianU16, 4;
            dst_port: 13, BigEndianU16, 6;
            interface: 25, U32, 40;
            cookie: 7, U64, 44;
            timer_expires_ms: 20, U32, 52;
            rqueue: 21, U32, 56;
            wqueue: 22, U32, 60;
            uid: 23, U32, 64;
            inode: 24, U32, 68;
        }
    }
}

layout! {
    /// struct tcp_info: 224 bytes from Linux 4.19, 232 from 5.4, 240 from 6.2, 248 from 6.7, 280 from 6.18.
    /// Later kernels use the last four bytes differently without being longer: see `AccEcn`.
    tcp_info {
        224 => {
            tcp_info_state: 51, U8, 0;
            ca_state: 52, U8, 1;
            retransmits: 53, U8, 2;
            probes: 54, U8, 3;
            backoff: 55, U8, 4;
            options: 56, U8, 5;
            snd_wscale: 57, LowNibble, 6;
            rcv_wscale: 58, HighNibble, 6;
            delivery_rate_app_limited: 59, Bit0, 7;
            fastopen_client_fail: 60, Bits1And2, 7;
            rto: 61, U32, 8;
            ato: 62, U32, 12;
            snd_mss: 63, U32, 16;
            rcv_mss: 64, U32, 20;
            unacked: 65, U32, 24;
            sacked: 66, U32, 28;
            lost: 67, U32, 32;
            retrans: 68, U32, 36;
            fackets: 69, U32, 40;
            last_data_sent: 70, U32, 44;
            last_ack_sent: 71, U32, 48;
            last_data_recv: 72, U32, 52;
            last_ack_recv: 73, U32, 56;
            pmtu: 74, U32, 60;
            rcv_ssthresh: 75, U32, 64;
            rtt: 15, U32, 68;
            rttvar: 76, U32, 72;
            snd_ssthresh: 77, U32, 76;
            snd_cwnd: 14, U32, 80;
            advmss: 78, U32, 84;
            reordering: 79, U32, 88;
            rcv_rtt: 80, U32, 92;
            rcv_space: 81, U32, 96;
            total_retrans: 82, U32, 100;
            pacing_rate: 83, U64, 104;
            max_pacing_rate: 84, U64, 112;
            bytes_acked: 85, U64, 120;
            bytes_received: 86, U64, 128;
            segs_out: 87, U32, 136;
            segs_in: 88, U32, 140;
            notsent_bytes: 89, U32, 144;
            min_rtt: 90, U32, 148;
            data_segs_in: 91, U32, 152;
            data_segs_out: 92, U32, 156;
            delivery_rate: 93, U64, 160;
            busy_time: 94, U64, 168;
            rwnd_limited: 95, U64, 176;
            sndbuf_limited: 96, U64, 184;
            delivered: 97, U32, 192;
            delivered_ce: 98, U32, 196;
            bytes_sent: 99, U64, 200;
            bytes_retrans: 100, U64, 208;
            dsack_dups: 101, U32, 216;
            reord_seen: 102, U32, 220;
        }
        232 => {
            rcv_ooopack: 103, U32, 224;
            snd_wnd: 104, U32, 228;
        }
        240 => {
            rcv_wnd: 105, U32, 232;
            rehash: 106, U32, 236;
        }
        248 => {
            total_rto: 107, U16, 240;
            total_rto_recoveries: 108, U16, 242;
            total_rto_time: 109, U32, 244;
        }
        276 => {
            received_ce: 110, U32, 248;
            delivered_e1_bytes: 111, U32, 252;
            delivered_e0_bytes: 112, U32, 256;
            delivered_ce_bytes: 113, U32, 260;
            received_e1_bytes: 114, U32, 264;
            received_e0_bytes: 115, U32, 268;
            received_ce_bytes: 116, U32, 272;
        }
        280 => {
            accecn_fail_mode: 117, U16, 276;
            accecn_opt_seen: 118, U16, 278;
        }
    }
}

layout! {
    /// INET_DIAG_SKMEMINFO, an array of SK_MEMINFO_VARS words.
    skmem {
        36 => {
            skmem_rmem_alloc: 40, U32, 0;
            skmem_rcvbuf: 41, U32, 4;
            skmem_wmem_alloc: 42, U32, 8;
            skmem_sndbuf: 43, U32, 12;
            skmem_fwd_alloc: 44, U32, 16;
            skmem_wmem_queued: 45, U32, 20;
            skmem_optmem: 46, U32, 24;
            skmem_backlog: 47, U32, 28;
            skmem_drops: 48, U32, 32;
        }
    }
}

layout! {
    /// struct tcp_bbr_info; its bandwidth is two words, the low one first.
    bbr {
        20 => {
            bbr_bw: 130, U64, 0;
            bbr_min_rtt: 131, U32, 8;
            bbr_pacing_gain: 132, U32, 12;
            bbr_cwnd_gain: 133, U32, 16;
        }
    }
}

layout! {
    /// struct tcpvegas_info.
    vegas {
        16 => {
            vegas_enabled: 140, U32, 0;
            vegas_rttcnt: 141, U32, 4;
            vegas_rtt: 142, U32, 8;
            vegas_minrtt: 143, U32, 12;
        }
    }
}

layout! {
    /// struct tcp_dctcp_info.
    dctcp {
        16 => {
            dctcp_enabled: 150, U16, 0;
            dctcp_ce_state: 151, U16, 2;
            dctcp_alpha: 152, U32, 4;
            dctcp_ab_ecn: 153, U32, 8;
            dctcp_ab_tot: 154, U32, 12;
        }
    }
}

layout! {
    /// INET_DIAG_TOS.
    tos { 1 => { tos: 27, U8, 0; } }
}

layout! {
    /// INET_DIAG_TCLASS.
    tclass { 1 => { tclass: 28, U8, 0; } }
}

layout! {
    /// INET_DIAG_SHUTDOWN.
    shutdown { 1 => { shutdown: 29, U8, 0; } }
}

layout! {
    /// INET_DIAG_SKV6ONLY.
    v6only { 1 => { v6only: 30, NonZero, 0; } }
}

layout! {
    /// INET_DIAG_MARK.
    mark { 4 => { mark: 31, U32, 0; } }
}

layout! {
    /// INET_DIAG_CLASS_ID.
    class_id { 4 => { class_id: 32, U32, 0; } }
}

layout! {
    /// INET_DIAG_CGROUP_ID.
    cgroup_id { 8 => { cgroup_id: 33, U64, 0; } }
}

layout! {
    /// INET_DIAG_PROTOCOL.
    protocol { 1 => { protocol: 34, U8, 0; } }
}

layout! {
    /// struct inet_diag_sockopt.
    sockopt { 2 => { sockopt: 36, U16, 0; } }
}

/// Every part of the table.
pub(crate) const PARTS: &[&[Field]] = &[
    by_hand::FIELDS,
    message::FIELDS,
    tcp_info::FIELDS,
    skmem::FIELDS,
    bbr::FIELDS,
    vegas::FIELDS,
    dctcp::FIELDS,
    start::FIELDS,
    flight::FIELDS,
    tos::FIELDS,
    tclass::FIELDS,
    shutdown::FIELDS,
    v6only::FIELDS,
    mark::FIELDS,
    class_id::FIELDS,
    cgroup_id::FIELDS,
    protocol::FIELDS,
    sockopt::FIELDS,
];

/// Calls `each` with every field that the sample has: always-present ones, and optional ones that the kernel gave.
pub(crate) fn visit<'a>(sample: &'a TcpSample, each: &mut dyn FnMut(&'static str, Value<'a>)) {
    by_hand::visit(sample, each);
    message::visit(sample, each);
    tos::visit(sample, each);
    tclass::visit(sample, each);
    shutdown::visit(sample, each);
    v6only::visit(sample, each);
    mark::visit(sample, each);
    class_id::visit(sample, each);
    cgroup_id::visit(sample, each);
    protocol::visit(sample, each);
    sockopt::visit(sample, each);
    tcp_info::visit(sample, each);
    skmem::visit(sample, each);
    bbr::visit(sample, each);
    vegas::visit(sample, each);
    dctcp::visit(sample, each);
    start::visit(sample, each);
    flight::visit(sample, each);
}

const LONGEST_ROW: usize = {
    let (mut sum, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut field = 0;
        while field < PARTS[part].len() {
            sum += PARTS[part][field].limit;
            field += 1;
        }
        part += 1;
    }
    sum
};
const _: () = assert!(
    LONGEST_ROW < ROW_LIMIT,
    "a row with every field at its longest must fit the slot"
);
