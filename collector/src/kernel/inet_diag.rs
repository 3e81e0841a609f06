//! One socket as the kernel describes it: struct inet_diag_msg and the attributes behind it, read in place.

/// The IPv4 address family.
pub(crate) const AF_INET: u8 = 2;
/// The IPv6 address family.
pub(crate) const AF_INET6: u8 = 10;

/// Length of struct inet_diag_msg, bytes.
pub(crate) const HEADER: usize = 72;

/// Attribute numbers of include/uapi/linux/inet_diag.h.
#[allow(missing_docs, reason = "the header's own names")]
pub(crate) mod attribute {
    pub(crate) const INFO: u16 = 2;
    pub(crate) const VEGASINFO: u16 = 3;
    pub(crate) const CONG: u16 = 4;
    pub(crate) const TOS: u16 = 5;
    pub(crate) const TCLASS: u16 = 6;
    pub(crate) const SKMEMINFO: u16 = 7;
    pub(crate) const SHUTDOWN: u16 = 8;
    pub(crate) const DCTCPINFO: u16 = 9;
    pub(crate) const PROTOCOL: u16 = 10;
    pub(crate) const SKV6ONLY: u16 = 11;
    pub(crate) const LOCALS: u16 = 12;
    pub(crate) const PEERS: u16 = 13;
    pub(crate) const PAD: u16 = 14;
    pub(crate) const MARK: u16 = 15;
    pub(crate) const BBRINFO: u16 = 16;
    pub(crate) const CLASS_ID: u16 = 17;
    pub(crate) const ULP_INFO: u16 = 19;
    pub(crate) const SK_BPF_STORAGES: u16 = 20;
    pub(crate) const CGROUP_ID: u16 = 21;
    pub(crate) const SOCKOPT: u16 = 22;
    pub(crate) const ULP_INFO_NAME: u16 = 1;
    // From include/uapi/linux/sock_diag.h, in SK_BPF_STORAGES: a storage, and in it its map's number and its value.
    pub(crate) const STORAGE: u16 = 1;
    pub(crate) const STORAGE_MAP_ID: u16 = 2;
    pub(crate) const STORAGE_MAP_VALUE: u16 = 3;
}

/// One socket's message, in the receive buffer.
#[derive(Clone, Copy)]
pub struct SocketView<'a> {
    header: &'a [u8; HEADER],
    attributes: &'a [u8],
}

impl<'a> SocketView<'a> {
    /// Takes a netlink message's payload. None when it is shorter than struct inet_diag_msg or its family is neither
    /// AF_INET nor AF_INET6.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (header, attributes) = payload.split_first_chunk::<HEADER>()?;
        matches!(header[0], AF_INET | AF_INET6).then_some(Self { header, attributes })
    }

    /// struct inet_diag_msg.
    pub fn header(&self) -> &'a [u8; HEADER] {
        self.header
    }

    /// AF_INET or AF_INET6.
    pub fn family(&self) -> u8 {
        self.header[0]
    }

    /// The local port.
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The peer's port; 0 when there is no peer.
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// idiag_cookie.
    #[inline(always)]
    pub fn cookie(&self) -> u64 {
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&self.header[44..52]);
        u64::from_ne_bytes(cookie)
    }

    /// The local address, network order; IPv4 is mapped into IPv6.
    #[inline(always)]
    pub fn source(&self) -> [u8; 16] {
        self.address::<8>()
    }

    /// The peer's address, as [`source`](Self::source).
    #[inline(always)]
    pub fn destination(&self) -> [u8; 16] {
        self.address::<24>()
    }

    #[inline(always)]
    fn address<const AT: usize>(&self) -> [u8; 16] {
        let mut address = [0; 16];
        if self.header[0] == AF_INET {
            address[10] = 0xff;
            address[11] = 0xff;
            address[12..].copy_from_slice(&self.header[AT..AT + 4]);
        } else {
            address.copy_from_slice(&self.header[AT..AT + 16]);
        }
        address
    }

    /// The attributes in the kernel's order.
    pub fn attributes(&self) -> AttributeIter<'a> {
        AttributeIter {
            rest: self.attributes,
        }
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its number, without the flags for nesting and byte order.
    pub kind: u16,
    /// Its bytes.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The first attribute `kind` inside this one.
    pub fn nested(&self, kind: u16) -> Option<&'a [u8]> {
        AttributeIter::new(self.payload)
            .map_while(Result::ok)
            .find(|inner| inner.kind == kind)
            .map(|inner| inner.payload)
    }
}

/// An attribute whose length is shorter than its own header or reaches past the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedAttribute;

/// The attributes of a message; ends after the first malformed one.
pub struct AttributeIter<'a> {
    rest: &'a [u8],
}

impl<'a> AttributeIter<'a> {
    /// Walks over these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

const ATTRIBUTE_HEADER: usize = 4;
const ATTRIBUTE_KIND_MASK: u16 = 0x3fff;

impl<'a> Iterator for AttributeIter<'a> {
    type Item = Result<Attribute<'a>, MalformedAttribute>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = self.rest;
        self.rest = &[];
        let Some(&[l0, l1, k0, k1]) = rest.first_chunk::<ATTRIBUTE_HEADER>() else {
            return Some(Err(MalformedAttribute));
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(payload) = rest.get(ATTRIBUTE_HEADER..len) else {
            return Some(Err(MalformedAttribute));
        };
        self.rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(Attribute {
            kind: u16::from_ne_bytes([k0, k1]) & ATTRIBUTE_KIND_MASK,
            payload,
        }))
    }
}
