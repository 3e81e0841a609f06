//! How a bundle reaches the kernel.
pub mod bpf;
