//! Packets as they are read and written.

use std::net::IpAddr;

use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6Header, LaxNetSlice, LaxSlicedPacket, PacketBuilder,
    PacketBuilderStep, TcpHeader, TransportSlice,
};

const TTL: u8 = 64;

/// Addresses of the end that sends, and of that which gets it.
pub(super) type Ends = (IpAddr, IpAddr);

/// A segment of TCP.
#[derive(Clone, Debug)]
pub(super) struct Segment<'a> {
    pub ends: Ends,
    pub tcp: TcpHeader,
    pub data: &'a [u8],
}

/// Reads a packet from its IP header on; None where it is no segment, or has an option that says what its data is for: what
/// MPTCP's data belongs to stands in its options, and TCP MD5 and TCP-AO sign it.
pub(super) fn read(packet: &[u8]) -> Option<Segment<'_>> {
    let found = LaxSlicedPacket::from_ip(packet).ok()?;
    let ends = match found.net? {
        LaxNetSlice::Ipv4(one) => {
            let header = one.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        LaxNetSlice::Ipv6(one) => {
            let header = one.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = found.transport else {
        return None;
    };
    let (tcp, data) = (tcp.to_header(), tcp.payload());
    // Known here are those of RFC 9293, SACK and timestamps.
    let is_plain = tcp.options_iterator().all(|option| option.is_ok());
    is_plain.then_some(Segment { ends, tcp, data })
}

/// Words of a segment about what its sender has got: of the other end's data, and how much more it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub acknowledged: u32,
    pub window: u16,
}

/// Writes a segment of data, without options: one without a timestamp leaves those of its connection alone.
pub(super) fn segment(
    ends: Ends,
    ports: (u16, u16),
    got: Got,
    first: u32,
    data: &[u8],
) -> Option<Vec<u8>> {
    let mut tcp = TcpHeader::new(ports.0, ports.1, first, got.window);
    tcp.ack = true;
    tcp.psh = true;
    tcp.acknowledgment_number = got.acknowledged;
    let builder = ip(ends, IpNumber::TCP, 0)?.tcp_header(tcp);
    let mut out = Vec::with_capacity(builder.size(data.len()));
    builder.write(&mut out, data).ok()?;
    Some(out)
}

/// Writes a datagram.
pub(super) fn datagram(ends: Ends, port: u16, dscp: u8, data: &[u8]) -> Option<Vec<u8>> {
    let builder = ip(ends, IpNumber::UDP, dscp)?.udp(port, port);
    let mut out = Vec::with_capacity(builder.size(data.len()));
    builder.write(&mut out, data).ok()?;
    Some(out)
}

fn ip(ends: Ends, next: IpNumber, dscp: u8) -> Option<PacketBuilderStep<IpHeaders>> {
    let header = match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let mut header = Ipv4Header::new(0, TTL, next, source, destination).ok()?;
            header.dscp = dscp.try_into().ok()?;
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header {
                traffic_class: dscp << 2,
                hop_limit: TTL,
                next_header: next,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        _ => return None,
    };
    Some(PacketBuilder::ip(header))
}

/// The 16 bytes of an address; of IPv4, those of its mapped form.
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    let six = match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    six.octets()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ones' complement sum of the pseudo header and what follows: all ones where the checksum is right (RFC 9293, 3.1).
    fn sum(ends: Ends, protocol: u8, packet: &[u8]) -> u32 {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(four) => four.octets().to_vec(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        let mut all = [octets(ends.0), octets(ends.1)].concat();
        all.extend((packet.len() as u32).to_be_bytes());
        all.extend([0, 0, 0, protocol]);
        all.extend(packet);
        all.push(0);
        let words = all
            .chunks_exact(2)
            .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
        words.sum::<u32>() % 0xffff
    }

    #[test]
    fn a_segment_with_an_option_that_says_what_its_data_is_for_is_left_alone() {
        let with = |options: &[u8]| {
            let builder = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
            let builder = builder.tcp(80, 5000, 1, 1).options_raw(options).unwrap();
            let mut packet = Vec::new();
            builder.write(&mut packet, b"data").unwrap();
            packet
        };
        let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(read(&with(&stamps)).unwrap().data, b"data");
        // MPTCP, MD5, AO.
        for (kind, length) in [(30u8, 4u8), (19, 18), (29, 16)] {
            let mut options = stamps.to_vec();
            options.extend([kind, length]);
            options.resize(stamps.len() + usize::from(length), 0x20);
            assert!(read(&with(&options)).is_none());
        }
    }

    #[test]
    fn a_segment_is_what_its_sender_would_send_now() {
        let pairs = [
            ("192.0.2.1", "192.0.2.2", 20),
            ("2001:db8::1", "2001:db8::2", 40),
        ];
        for (source, destination, header) in pairs {
            let ends: Ends = (source.parse().unwrap(), destination.parse().unwrap());
            let got = Got {
                acknowledged: 77,
                window: 321,
            };
            let packet = segment(ends, (80, 5000), got, u32::MAX, b"hello").unwrap();
            let read = read(&packet).unwrap();
            assert_eq!((read.ends, read.data), (ends, &b"hello"[..]));
            let tcp = &read.tcp;
            assert_eq!((tcp.source_port, tcp.destination_port), (80, 5000));
            assert_eq!(tcp.sequence_number, u32::MAX);
            assert_eq!((tcp.acknowledgment_number, tcp.window_size), (77, 321));
            assert_eq!(
                (tcp.ack, tcp.psh, tcp.syn, tcp.fin),
                (true, true, false, false)
            );
            assert_eq!(sum(ends, 6, &packet[header..]), 0);
            let packet = datagram(ends, 99, 46, b"parity!").unwrap();
            assert_eq!(&packet[header + 8..], b"parity!");
            assert_eq!(sum(ends, 17, &packet[header..]), 0);
            let first = u16::from_be_bytes([packet[0], packet[1]]);
            assert_eq!(first >> if header == 20 { 2 } else { 6 } & 63, 46);
        }
    }
}
