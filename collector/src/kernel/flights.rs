//! First flights of connections: springtide-edge's eBPF program leaves a record of each in a ring
//! buffer as it closes.

use springtide_core::layout::Record;
use zerocopy::FromBytes;

use super::inet_diag::{AF_INET, AF_INET6, HEADER};
use super::starts::Start;

/// Bytes of an IPv4 address in IPv6.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const MAPPED_BITS: u32 = 96;
/// include/net/tcp_states.h.
const CLOSE: u8 = 7;

/// One connection's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// struct inet_diag_msg as far as it is known: family, state, ports, addresses and cookie.
    pub(crate) header: [u8; HEADER],
    /// Values that the connection started with.
    pub(crate) start: Start,
    /// Length of the entry's prefix, in the connection's own family.
    pub(crate) prefix_length: u32,
    /// Record that the program wrote.
    pub(crate) record: Record,
}

impl Flight {
    /// Reads a record; None where it cannot be one: it is taken whole or not at all.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let record = Record::read_from_bytes(record).ok()?;
        let start = Start::known(
            record.layout,
            record.round,
            (record.window, record.rate),
            (record.arm, record.step),
            record.copied_segments.into(),
        )?;
        let (local, remote) = (record.local.octets(), record.remote.octets());
        let mapped = local.starts_with(&MAPPED) && remote.starts_with(&MAPPED);
        let flight = Self {
            header: header(
                mapped,
                (&local, u16::try_from(record.local_port).ok()?),
                (&remote, u16::try_from(record.remote_port).ok()?),
                &record.cookie.to_ne_bytes(),
            ),
            start,
            prefix_length: match mapped {
                true => record.length.saturating_sub(MAPPED_BITS),
                false => record.length,
            },
            record,
        };
        (record.length <= 128).then_some(flight)
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

#[cfg(test)]
mod tests {
    use springtide_core::layout::{Address, LAYOUT};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::kernel::inet_diag::SocketView;

    /// As the program writes it, for 192.0.2.1:443 to 198.51.100.7:40000.
    fn record() -> Record {
        let address = |four: [u8; 4]| {
            let octets = [&MAPPED[..], &four].concat();
            Address::new(octets.try_into().unwrap())
        };
        Record {
            cookie: 77,
            round: 1_767_312_300,
            netns: 4_026_531_840,
            local: address([192, 0, 2, 1]),
            remote: address([198, 51, 100, 7]),
            local_port: 443,
            remote_port: 40_000,
            length: 120,
            window: 60,
            rate: 5_000_000,
            arm: 1,
            step: 2,
            flags: 0x7f,
            layout: LAYOUT,
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let flight = Flight::parse(record().as_bytes()).unwrap();
        let start = Start {
            round: 1_767_312_300,
            window: 60,
            rate: 5_000_000,
            arm: 1,
            step: 2,
            copied_segments: 0,
        };
        assert_eq!((flight.start, flight.record), (start, record()));
        assert_eq!(flight.prefix_length, 24);
        let view = SocketView::parse(&flight.header).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (443, 40_000));
        assert_eq!((view.cookie(), view.family()), (77, AF_INET));
        assert_eq!(view.source()[12..], [192, 0, 2, 1]);
        assert_eq!(view.destination()[12..], [198, 51, 100, 7]);
        let six = Record {
            local: Address::new([0x20; 16]),
            ..record()
        };
        let flight = Flight::parse(six.as_bytes()).unwrap();
        let view = SocketView::parse(&flight.header).unwrap();
        assert_eq!((view.family(), flight.prefix_length), (AF_INET6, 120));
        assert_eq!(view.source(), [0x20; 16]);
    }

    #[test]
    fn what_cannot_be_a_record_is_none() {
        let wrong: [fn(&mut Record); 10] = [
            |one| one.layout = 0,
            |one| one.layout = LAYOUT - 1,
            |one| one.layout = LAYOUT + 1,
            |one| one.arm = 2,
            |one| one.step = 3,
            |one| one.local_port = 65_536,
            |one| one.remote_port = 65_536,
            |one| one.round = 1 << 32,
            |one| one.window = 65_536,
            |one| one.length = 129,
        ];
        for (at, change) in wrong.iter().enumerate() {
            let mut wrong = record();
            change(&mut wrong);
            assert_eq!(Flight::parse(wrong.as_bytes()), None, "{at}");
        }
        let (right, bytes) = (record(), record().as_bytes().to_vec());
        assert!(Flight::parse(right.as_bytes()).is_some());
        assert_eq!(Flight::parse(&bytes[1..]), None);
        assert_eq!(Flight::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Flight::parse(&[]), None);
    }
}
