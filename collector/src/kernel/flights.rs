//! How connections' first flights went: springtide-edge's eBPF program leaves a record of each in a ring buffer as it closes.

use super::inet_diag::{AF_INET, AF_INET6, HEADER};
use super::pin::LAYOUT;

/// Length of struct record of edge/bpf/start.h.
const LEN: usize = 168;
/// Bytes of an IPv4 address in IPv6.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const MAPPED_BITS: u32 = 96;
/// include/net/tcp_states.h.
const CLOSE: u8 = 7;

/// One connection's record; microseconds, 0 where it did not happen, or as the contract says of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// struct inet_diag_msg as far as it is known: family, state, ports, addresses and cookie.
    pub(crate) header: [u8; HEADER],
    /// CLOCK_BOOTTIME when it closed, nanoseconds.
    pub(crate) closed_ns: u64,
    /// Inode of its network namespace; 0 where the program could not tell.
    pub(crate) netns: u64,
    pub(crate) round: u64,
    pub(crate) window: u32,
    pub(crate) rate: u32,
    pub(crate) arm: u32,
    pub(crate) step: u32,
    pub(crate) at_once: u32,
    pub(crate) prefix_length: u32,
    pub(crate) first_resent: u32,
    pub(crate) first_segments: u32,
    pub(crate) resent: u32,
    pub(crate) segments: u32,
    pub(crate) acked_bytes: u64,
    pub(crate) handshake_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) first_us: u32,
    pub(crate) acked_10k_us: u32,
    pub(crate) acked_50k_us: u32,
    pub(crate) acked_100k_us: u32,
    pub(crate) lifted_us: u32,
    pub(crate) lived_us: u32,
    pub(crate) train_bytes: u32,
    pub(crate) train_us: u32,
}

impl Flight {
    /// Reads a record; None where it cannot be one: it is taken whole or not at all.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let record: &[u8; LEN] = record.try_into().ok()?;
        let word = |at: usize| u32::from_ne_bytes(chunk(record, at));
        let long = |at: usize| u64::from_ne_bytes(chunk(record, at));
        let (local, remote): ([u8; 16], [u8; 16]) = (chunk(record, 48), chunk(record, 64));
        let mapped = local.starts_with(&MAPPED) && remote.starts_with(&MAPPED);
        let length = word(88);
        let prefix_length = match mapped {
            true => length.saturating_sub(MAPPED_BITS),
            false => length,
        };
        let flight = Self {
            header: header(
                mapped,
                (&local, u16::try_from(word(80)).ok()?),
                (&remote, u16::try_from(word(84)).ok()?),
                &record[..8],
            ),
            closed_ns: long(8),
            round: long(24),
            acked_bytes: long(32),
            netns: long(40),
            prefix_length,
            window: word(92),
            rate: word(96),
            at_once: word(100),
            first_resent: word(104),
            first_segments: word(156),
            resent: word(108),
            segments: word(112),
            handshake_us: word(116),
            min_rtt_us: word(120),
            first_us: word(124),
            acked_10k_us: word(128),
            acked_50k_us: word(132),
            acked_100k_us: word(136),
            lifted_us: word(140),
            lived_us: word(144),
            train_bytes: word(148),
            train_us: word(152),
            arm: record[160].into(),
            step: record[161].into(),
        };
        let known = record[163] == LAYOUT
            && u32::try_from(flight.round).is_ok()
            && u16::try_from(flight.window).is_ok()
            && length <= 128
            && flight.arm <= 1
            && flight.step <= 2;
        known.then_some(flight)
    }

    /// Without the state, which is that of no socket any more: as its row has it.
    pub(crate) fn without_state(&self) -> [u8; HEADER] {
        let mut header = self.header;
        header[1] = 0;
        header
    }
}

fn header(
    mapped: bool,
    local: (&[u8; 16], u16),
    remote: (&[u8; 16], u16),
    cookie: &[u8],
) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (if mapped { AF_INET } else { AF_INET6 }, CLOSE);
    for (at, (address, port)) in [local, remote].into_iter().enumerate() {
        let (port_at, address_at) = (4 + 2 * at, 8 + 16 * at);
        header[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        let address = if mapped {
            &address[MAPPED.len()..]
        } else {
            &address[..]
        };
        header[address_at..address_at + address.len()].copy_from_slice(address);
    }
    header[44..52].copy_from_slice(cookie);
    header
}

fn chunk<const N: usize>(record: &[u8; LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As the program writes it, for 192.0.2.1:443 to 198.51.100.7:40000.
    pub(crate) fn record() -> Vec<u8> {
        let mut bytes = Vec::new();
        for long in [
            77_u64,
            5_000_000_000,
            3,
            1_767_312_300,
            250_000,
            4_026_531_840,
        ] {
            bytes.extend(long.to_ne_bytes());
        }
        for address in [[192, 0, 2, 1], [198, 51, 100, 7]] {
            bytes.extend(MAPPED);
            bytes.extend(address);
        }
        let words: [u32; 20] = [
            443, 40_000, 120, 60, 5_000_000, 2, 1, 4, 180, 102_000, 101_000, 103_000, 104_000,
            130_000, 160_000, 140_000, 900_000, 13_032, 2_100, 72,
        ];
        for word in words {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([1, 0, 0x7f, LAYOUT, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let flight = Flight::parse(&record()).unwrap();
        assert_eq!(
            (flight.window, flight.rate, flight.at_once),
            (60, 5_000_000, 2)
        );
        assert_eq!(
            (flight.round, flight.arm, flight.step),
            (1_767_312_300, 1, 0)
        );
        assert_eq!((flight.prefix_length, flight.acked_bytes), (24, 250_000));
        assert_eq!(
            (flight.first_resent, flight.resent, flight.segments),
            (1, 4, 180)
        );
        assert_eq!(flight.first_segments, 72);
        assert_eq!(
            (flight.acked_10k_us, flight.acked_50k_us),
            (104_000, 130_000)
        );
        assert_eq!((flight.acked_100k_us, flight.lifted_us), (160_000, 140_000));
        assert_eq!((flight.lived_us, flight.netns), (900_000, 4_026_531_840));
        assert_eq!((flight.train_bytes, flight.train_us), (13_032, 2_100));
        let view = crate::kernel::inet_diag::SocketView::parse(&flight.header).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (443, 40_000));
        assert_eq!((view.cookie(), view.family()), (77, AF_INET));
        assert_eq!(view.destination()[12..], [198, 51, 100, 7]);
    }

    #[test]
    fn what_cannot_be_a_record_is_none() {
        let right = record();
        for (at, value) in [
            (163, 0),
            (163, LAYOUT - 1),
            (163, LAYOUT + 1),
            (160, 2),
            (161, 3),
            (81, 1),
            (28, 1),
            (94, 1),
            (88, 129),
        ] {
            let mut wrong = right.clone();
            wrong[at] = value;
            if at == 81 {
                wrong[82] = 1;
            }
            assert_eq!(Flight::parse(&wrong), None, "{at}");
        }
        assert_eq!(Flight::parse(&right[1..]), None);
        assert_eq!(Flight::parse(&[&right[..], &[0]].concat()), None);
        assert_eq!(Flight::parse(&[]), None);
    }

    /// The members of a struct of edge/bpf/start.h with their offsets. Its padding is explicit, so that each stands
    /// behind the one before it.
    pub(crate) fn members(name: &str) -> Vec<(String, usize, usize)> {
        let header = include_str!("../../../edge/bpf/start.h");
        let start = format!("\nstruct {name} {{\n");
        let (_, body) = header.split_once(&start).unwrap();
        let (body, _) = body.split_once("\n};").unwrap();
        let mut at = 0;
        let mut found = Vec::new();
        for line in body.lines() {
            let (declared, _) = line.trim().split_once(';').unwrap();
            let (kind, member) = declared.split_once(' ').unwrap();
            let bytes = match kind {
                "__u8" => 1,
                "__u32" => 4,
                "__u64" | "__s64" => 8,
                _ => break,
            };
            let (member, count) = match member.trim_end_matches(']').split_once('[') {
                Some((member, count)) => (member, count.parse().unwrap()),
                None => (member, 1),
            };
            assert_eq!(at % bytes, 0, "{name}.{member} has hidden padding");
            found.push((member.to_owned(), at, bytes * count));
            at += bytes * count;
        }
        found
    }

    #[test]
    fn each_member_is_read_where_the_program_writes_it() {
        let members = members("record");
        let (last, at, bytes) = members.last().unwrap();
        assert_eq!((last.as_str(), at + bytes), ("padding", LEN));
        for (member, at, bytes) in members {
            let mut changed = record();
            // The lowest bit of the first byte: what is then there can still be a record.
            let low = if cfg!(target_endian = "big") && member != "local" && member != "remote" {
                at + bytes - 1
            } else {
                at
            };
            changed[low] ^= 1;
            let (was, is) = (Flight::parse(&record()).unwrap(), Flight::parse(&changed));
            if member == "layout" {
                assert_eq!(is, None);
                continue;
            }
            let (was, is) = (shown(&was), shown(&is.unwrap()));
            let differ = was.iter().zip(&is).filter(|(was, is)| was != is);
            let differ: Vec<_> = differ.map(|(was, _)| was.0.as_str()).collect();
            let expected: &[&str] = match member.as_str() {
                // Not read.
                "generation" | "flags" | "padding" => &[],
                "length" => &["prefix_length"],
                // The first byte decides whether it is IPv4.
                "local" => &["family", "local", "remote", "prefix_length"],
                "remote" => &["family", "local", "remote", "prefix_length"],
                other => &[other],
            };
            assert_eq!(differ, expected, "{member}");
        }
    }

    /// Each value under its name in the header.
    fn shown(flight: &Flight) -> Vec<(String, Vec<u8>)> {
        let header = &flight.header;
        let parts: [(&str, &[u8]); 6] = [
            ("family", &header[..1]),
            ("local_port", &header[4..6]),
            ("remote_port", &header[6..8]),
            ("local", &header[8..24]),
            ("remote", &header[24..40]),
            ("cookie", &header[44..52]),
        ];
        let mut shown: Vec<_> = parts
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .into();
        let text = format!("{flight:?}");
        let (_, rest) = text.split_once("], ").unwrap();
        for pair in rest.trim_end_matches(" }").split(", ") {
            let (name, value) = pair.split_once(": ").unwrap();
            shown.push((name.to_owned(), value.into()));
        }
        shown
    }
}
