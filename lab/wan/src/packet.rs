//! Just enough of IP to know where a packet goes.

use std::net::{IpAddr, SocketAddr};

use crate::flows::Flow;

/// The destination address, or None when this is not a whole IPv4 or IPv6 header (RFC 791, RFC 8200).
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        6 => Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?,
        )),
        _ => None,
    }
}

/// The flow of a TCP segment and the bytes of its payload, or None without a complete TCP header over IP (RFC 9293).
/// IPv6 extension headers are not looked through: the lab's kernels send none.
pub fn segment(packet: &[u8]) -> Option<(Flow, u64)> {
    const TCP: u8 = 6;
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let (src, dst) = (source(packet)?, destination(packet)?);
    let tcp = packet.get(header..)?;
    let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let flow = Flow {
        src: SocketAddr::new(src, port(0)?),
        dst: SocketAddr::new(dst, port(2)?),
    };
    let payload = tcp.len().checked_sub(usize::from(tcp.get(12)? >> 4) * 4)?;
    (protocol == TCP).then_some((flow, payload as u64))
}

fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let found = destination(&bytes);
            prop_assert!(found.is_none() || bytes.len() >= 20);
            prop_assert!(segment(&bytes).is_none_or(|(_, payload)| payload <= bytes.len() as u64));
        }

        #[test]
        fn both_families_are_read(v4: [u8; 4], v6: [u8; 16], rest in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut short = vec![0x45];
            short.resize(16, 0);
            short.extend(v4);
            short.extend(&rest);
            prop_assert_eq!(destination(&short), Some(IpAddr::V4(Ipv4Addr::from(v4))));
            let mut long = vec![0x60];
            long.resize(24, 0);
            long.extend(v6);
            long.extend(&rest);
            prop_assert_eq!(destination(&long), Some(IpAddr::V6(Ipv6Addr::from(v6))));
        }

        #[test]
        fn a_segment_has_its_ports_and_its_payload(ports: [u16; 2], options in 0..10_usize, payload in 0..1460_usize) {
            let mut tcp = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
            tcp.resize(20 + options * 4 + payload, 0);
            tcp[12] = ((5 + options) as u8) << 4;
            let mut short = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            short.extend(&tcp);
            let mut long = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
            long.extend(Ipv6Addr::LOCALHOST.octets());
            long.extend(Ipv6Addr::UNSPECIFIED.octets());
            long.extend(&tcp);
            for (packet, src) in [(&short, "10.0.0.1"), (&long, "::1")] {
                let (flow, bytes) = segment(packet).unwrap();
                prop_assert_eq!((flow.src.port(), flow.dst.port(), bytes), (ports[0], ports[1], payload as u64));
                prop_assert_eq!(flow.src.ip().to_string(), src);
            }
            short[9] = 17;
            prop_assert_eq!(segment(&short), None);
        }
    }
}
