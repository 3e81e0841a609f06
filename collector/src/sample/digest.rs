//! Whether a socket has changed since it was last exported.

use crate::kernel::inet_diag::{HEADER, SocketView, attribute};

/// idiag_expires in struct inet_diag_msg.
const EXPIRES: std::ops::Range<usize> = 52..56;

/// tcpi_last_data_sent to tcpi_last_ack_recv in struct tcp_info.
const LAST_TIMES: std::ops::Range<usize> = 44..60;

/// A CRC of everything that the kernel reports of the socket, except the times that pass by themselves: until the timer
/// fires and since data or an acknowledgement came or went. A difference in one word alone is never missed; any other
/// is missed once in 2^32.
pub fn digest(view: &SocketView<'_>) -> u32 {
    let header = view.header();
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..EXPIRES.start]);
    crc.update(&header[EXPIRES.end..HEADER]);
    for attribute in view.attributes().map_while(Result::ok) {
        crc.update(&attribute.kind.to_ne_bytes());
        match attribute.payload.get(LAST_TIMES.end..) {
            Some(rest) if attribute.kind == attribute::INFO => {
                crc.update(&attribute.payload[..LAST_TIMES.start]);
                crc.update(rest);
            }
            _ => crc.update(attribute.payload),
        }
    }
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields::{message, tcp_info};
    use crate::sample::proto::TcpSample;
    use crate::sample::wire::{RowWriter, SLOT};
    use prost::Message;

    fn sample_of(layout: impl Fn(&mut RowWriter<'_>)) -> TcpSample {
        let mut slot = [0; SLOT];
        let mut row = RowWriter::new(&mut slot);
        layout(&mut row);
        let length = row.len();
        TcpSample::decode(&slot[..length]).unwrap()
    }

    fn payload(header: &[u8], info: &[u8]) -> Vec<u8> {
        let mut payload = header.to_vec();
        payload.extend((info.len() as u16 + 4).to_ne_bytes());
        payload.extend(attribute::INFO.to_ne_bytes());
        payload.extend(info);
        payload
    }

    /// The names of the fields in which two samples differ.
    fn differing(one: &TcpSample, other: &TcpSample) -> Vec<&'static str> {
        let values = |sample: &TcpSample| {
            let mut values = Vec::new();
            crate::sample::fields::visit(sample, &mut |name, value| {
                values.push((name, format!("{value:?}")));
            });
            values
        };
        let other = values(other);
        values(one)
            .into_iter()
            .filter(|value| !other.contains(value))
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn every_byte_counts_but_those_of_times_that_pass_by_themselves() {
        let mut header = [1; HEADER];
        header[0] = 2;
        let info = [1; tcp_info::LEN];
        let before = payload(&header, &info);
        let digest_of = |bytes: &[u8]| digest(&SocketView::parse(bytes).unwrap());
        let ticking = [
            "timer_expires_ms",
            "last_data_sent",
            "last_ack_sent",
            "last_data_recv",
            "last_ack_recv",
        ];
        for at in (1..before.len()).filter(|at| !(HEADER..HEADER + 4).contains(at)) {
            let mut after = before.clone();
            after[at] ^= 0x2e;
            let fields = if at < HEADER {
                differing(
                    &sample_of(|row| message::encode(&before[..HEADER], row)),
                    &sample_of(|row| message::encode(&after[..HEADER], row)),
                )
            } else {
                differing(
                    &sample_of(|row| tcp_info::encode(&before[HEADER + 4..], row)),
                    &sample_of(|row| tcp_info::encode(&after[HEADER + 4..], row)),
                )
            };
            let ticks = !fields.is_empty() && fields.iter().all(|name| ticking.contains(name));
            assert_eq!(
                digest_of(&before) == digest_of(&after),
                ticks,
                "byte {at}, {fields:?}"
            );
        }
    }

    #[test]
    fn a_tcp_info_that_ends_early_counts_whole() {
        let header = [2; HEADER];
        let digest_of = |info: &[u8]| digest(&SocketView::parse(&payload(&header, info)).unwrap());
        let (short, mut other) = ([0; 50], [0; 50]);
        other[45] = 1;
        assert_ne!(digest_of(&short), digest_of(&other));
    }
}
