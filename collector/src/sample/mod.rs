//! From a kernel's view of a socket to a TcpSample's bytes, gathered in a [`batch`], and from the bytes to what people read.

pub mod algorithms;
pub mod batch;
pub mod connection;
pub mod digest;
pub mod encode;
pub mod fields;
pub mod json;
pub mod kinds;
pub mod value;
pub mod wire;

/// The contract's types, generated from proto/springtide/v1/tcp_sample.proto. Only readers use them: the encoder writes
/// bytes straight from the kernel's.
#[allow(
    missing_docs,
    reason = "generated; the comments of the .proto file become docs where there are any"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/springtide.v1.rs"));
}
