//! How a bundle reaches the kernel: two ways, with the same names for what both do.

pub mod bpf;
pub mod routes;
