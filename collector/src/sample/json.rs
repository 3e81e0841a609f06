//! TcpSample as JSON: the contract's names, addresses as text, enums by name, absent fields left out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fields;
use super::proto::{SampleKind, TcpSample, TcpState};
use super::value::Value;

/// Appends the sample to `out` as one JSON object on one line, without a line end.
pub(crate) fn write_json(sample: &TcpSample, out: &mut String) {
    out.push('{');
    let mut separator = "";
    fields::visit(sample, &mut |name, value| {
        out.push_str(separator);
        separator = ",";
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        match (name, value) {
            ("state", Value::Signed(number)) => enum_or_number(state_name(number), number, out),
            ("kind", Value::Signed(number)) => enum_or_number(kind_name(number), number, out),
            (_, Value::Unsigned(number)) => out.push_str(&number.to_string()),
            (_, Value::Signed(number)) => out.push_str(&number.to_string()),
            (_, Value::Bool(flag)) => out.push_str(if flag { "true" } else { "false" }),
            (_, Value::Text(text)) => quote(text, out),
            (_, Value::Bytes(bytes)) => quote(&address_text(bytes, sample.family), out),
        }
    });
    out.push('}');
}

/// An address field as text: dotted quad for AF_INET, else IPv6 as it is (mapped: ::ffff:a.b.c.d). Bytes that are no
/// address are shown in hexadecimal.
pub(crate) fn address_text(bytes: &[u8], family: u32) -> String {
    match address(bytes, family) {
        Some(address) => address.to_string(),
        None => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// An address field in the socket's own family.
pub(crate) fn address(bytes: &[u8], family: u32) -> Option<IpAddr> {
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    let [.., a, b, c, d] = address.octets();
    if family == u32::from(crate::kernel::inet_diag::AF_INET) {
        return Some(Ipv4Addr::new(a, b, c, d).into());
    }
    Some(address.into())
}

/// The contract's name of a state.
pub(crate) fn state_name(number: i64) -> Option<&'static str> {
    Some(
        TcpState::try_from(i32::try_from(number).ok()?)
            .ok()?
            .as_str_name(),
    )
}

fn kind_name(number: i64) -> Option<&'static str> {
    Some(
        SampleKind::try_from(i32::try_from(number).ok()?)
            .ok()?
            .as_str_name(),
    )
}

fn enum_or_number(name: Option<&str>, number: i64, out: &mut String) {
    match name {
        Some(name) => quote(name, out),
        None => out.push_str(&number.to_string()),
    }
}

fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}
