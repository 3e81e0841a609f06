//! Records as one insert.

use std::io::{self, Write};

use crate::spool::queue::{Position, Record};

/// As in the spool.
const LEVEL: i32 = 1;

/// Records as one insert.
pub(super) struct Batch {
    pub(super) records: Vec<Position>,
    pub(super) token: String,
    pub(super) body: Vec<u8>,
}

/// The body of the insert: the length of all Envelopes together, then the Envelopes, which in protobuf is their merge.
pub(super) fn batch(host: &str, records: Vec<Record>) -> io::Result<Batch> {
    let envelopes: Vec<_> = records
        .iter()
        .map(|record| envelope(&record.bytes))
        .collect();
    let mut length = Vec::new();
    prost::encoding::encode_varint(
        envelopes.iter().map(|part| part.len() as u64).sum(),
        &mut length,
    );
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.write_all(&length)?;
    for part in envelopes {
        encoder.write_all(part)?;
    }
    Ok(Batch {
        token: token(host, &records),
        records: records.iter().map(|record| record.at).collect(),
        body: encoder.finish()?,
    })
}

/// A message without its length.
fn envelope(mut message: &[u8]) -> &[u8] {
    // A message that does not begin with a length fails to parse on the server, with the rest of
    // the insert.
    let _ = prost::encoding::decode_varint(&mut message);
    message
}

/// The same for the same records, and for no others: their place in the queue is not used again, unless the queue was
/// removed, and then the checksums differ.
fn token(host: &str, records: &[Record]) -> String {
    let place = |record: Option<&Record>| {
        record.map_or_else(String::new, |record| {
            format!("{}-{}", record.at.segment, record.at.offset)
        })
    };
    let mut sums = crc32fast::Hasher::new();
    for record in records {
        sums.update(&record.checksum.to_le_bytes());
    }
    let (first, last) = (place(records.first()), place(records.last()));
    format!("{host}:{first}:{last}:{:08x}", sums.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, bytes: &[u8]) -> Record {
        Record {
            at: Position { segment: 7, offset },
            checksum: bytes.len() as u32,
            rows: 1,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn messages_become_one_with_one_length() {
        let long = [&[200, 1][..], &[b'x'; 200]].concat();
        let batch = batch("h", vec![record(0, b"\x03abc"), record(23, &long)]).unwrap();
        let body = zstd::decode_all(&batch.body[..]).unwrap();
        assert_eq!(body[..5], [203, 1, b'a', b'b', b'c']);
        assert_eq!(body.len(), 2 + 203);
        assert_eq!(batch.records.len(), 2);
    }

    #[test]
    fn a_token_names_the_records() {
        let records = |sizes: &[usize]| -> Vec<_> {
            (0..)
                .zip(sizes)
                .map(|(at, &size)| record(at * 100, &vec![0; size]))
                .collect()
        };
        assert_eq!(token("h", &records(&[1, 2])), token("h", &records(&[1, 2])));
        let tokens = [
            token("h", &records(&[1, 2])),
            token("h", &records(&[1, 3])),
            token("h", &records(&[1, 2, 3])),
            token("i", &records(&[1, 2])),
        ];
        assert!(
            (1..4).all(|index| !tokens[..index].contains(&tokens[index])),
            "{tokens:?}"
        );
    }
}
