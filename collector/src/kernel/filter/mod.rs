//! Chooses the sockets to read, by port and address: one expression, two evaluators. The kernel
//! runs it as inet_diag bytecode and never describes the sockets that it leaves out;
//! [`Filter::matches`] decides the same for a close event, which the kernel does not filter.
//!
//! `sport`, `dport` and `port` take ports and ranges (`443`, `8000-8099`), `src`, `dst` and `addr` addresses and
//! prefixes, each a list with commas; `port` and `addr` mean either end. Conditions are joined with `not`, `and`, `or`
//! (binding in this order) and parentheses. An IPv4 prefix means IPv4 sockets and the mapped addresses of IPv6 ones; an
//! IPv6 prefix means IPv6 sockets.

mod bytecode;
mod parse;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::inet_diag::{AF_INET, SocketView};
pub(crate) use parse::ParseError;

/// Most conditions in a filter: the kernel tests them one after another for every socket.
pub(crate) const CONDITIONS_LIMIT: usize = 1000;

/// Deepest nesting of parentheses and `not`.
pub(crate) const DEPTH_LIMIT: usize = 32;

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    expression: Expression,
    bytecode: Vec<u8>,
}

impl Filter {
    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of an INET_DIAG_REQ_BYTECODE attribute; empty when every socket matches.
    pub fn bytecode(&self) -> &[u8] {
        &self.bytecode
    }

    /// Whether the socket matches the filter.
    pub fn matches(&self, view: &SocketView<'_>) -> bool {
        self.expression.holds(view)
    }
}

impl FromStr for Filter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expression = parse::parse(text)?;
        let bytecode = bytecode::compile(&expression);
        Ok(Self {
            text: text.to_owned(),
            expression,
            bytecode,
        })
    }
}

#[derive(Clone, Debug)]
enum Expression {
    Ports { end: End, from: u16, to: u16 },
    Prefix { end: End, prefix: Prefix },
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    V4(Ipv4Addr, u8),
    V6(Ipv6Addr, u8),
}

impl Expression {
    fn holds(&self, view: &SocketView<'_>) -> bool {
        match self {
            Self::Ports { end, from, to } => {
                let port = match end {
                    End::Source => view.source_port(),
                    End::Destination => view.destination_port(),
                };
                (*from..=*to).contains(&port)
            }
            Self::Prefix { end, prefix } => {
                let address = match end {
                    End::Source => view.source(),
                    End::Destination => view.destination(),
                };
                prefix.contains(view.family(), address)
            }
            Self::Not(inner) => !inner.holds(view),
            Self::All(parts) => parts.iter().all(|part| part.holds(view)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(view)),
        }
    }
}

impl Prefix {
    /// Whether the address of a socket of `family`, 16 bytes with IPv4 mapped, lies within.
    fn contains(&self, family: u8, address: [u8; 16]) -> bool {
        let address = Ipv6Addr::from(address);
        match *self {
            Self::V4(network, length) => address.to_ipv4_mapped().is_some_and(|address| {
                (address.to_bits() ^ network.to_bits())
                    .checked_shr(32 - u32::from(length))
                    .unwrap_or(0)
                    == 0
            }),
            Self::V6(network, length) => {
                family != AF_INET
                    && (address.to_bits() ^ network.to_bits())
                        .checked_shr(128 - u32::from(length))
                        .unwrap_or(0)
                        == 0
            }
        }
    }
}

#[cfg(test)]
mod tests;
