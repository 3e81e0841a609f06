//! Netlink's messages and attributes, in and out (linux/netlink.h).

/// Length of struct nlmsghdr, bytes.
pub(crate) const HEADER: usize = 16;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// In an answer: it leaves out the request, attributes follow.
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;
pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;

/// NLA_F_NESTED and NLA_F_NET_BYTEORDER say nothing about which attribute it is.
const KIND_MASK: u16 = 0x3fff;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram; ends at the first whose length is impossible.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        let body = datagram.get(HEADER..length)?;
        let message = Message {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            body,
        };
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(message)
    })
}

/// An attribute that is shorter than its header, or reaches past its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The attributes of a message: number as it stands there, and value.
pub(crate) fn attributes(mut data: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Malformed>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let found = (|| {
            let length = usize::from(u16_at(data, 0)?);
            let kind = u16_at(data, 2)?;
            let value = data.get(4..length)?;
            data = data.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, value))
        })();
        if found.is_none() {
            data = &[];
        }
        Some(found.ok_or(Malformed))
    })
}

/// The number of an attribute without its flags.
pub(crate) const fn number(kind: u16) -> u16 {
    kind & KIND_MASK
}

/// Appends one attribute, padded to four bytes.
pub(crate) fn push_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A whole message; the port is the kernel's to fill in.
pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + body.len());
    out.extend_from_slice(
        &u32::try_from(HEADER + body.len())
            .unwrap_or(u32::MAX)
            .to_ne_bytes(),
    );
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(body);
    debug_assert!(
        out.len().is_multiple_of(4),
        "attributes are padded, so that the next message begins where it should"
    );
    out
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

pub(crate) fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}
