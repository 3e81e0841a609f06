//! From a kernel's view of a socket to a TcpSample's bytes, gathered in a [`batch`], and from the bytes to what people read.

pub(crate) mod algorithms;
pub(crate) mod batch;
pub(crate) mod connection;
pub(crate) mod digest;
pub(crate) mod encode;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod kinds;
pub(crate) mod value;
pub(crate) mod wire;

/// The contract's types, generated from proto/springtide/v1/tcp_sample.proto. Only readers use them: the encoder writes
/// bytes straight from the kernel's.
#[allow(
    missing_docs,
    unreachable_pub,
    reason = "generated; the comments of the .proto file become docs where there are any"
)]
pub(crate) mod proto {
    include!(concat!(env!("OUT_DIR"), "/springtide.v1.rs"));
}
