//! Ways of a bundle into the kernel: by routes, or by the eBPF program. Both have these files:
//!
//! ```text
//! support.rs   whether this host can, and if not, exactly why
//! encode.rs    what of a bundle this way can carry
//! apply.rs     it comes into force
//! status.rs    what stands, and what is not as it was left
//! withdraw.rs  everything is removed
//! ```

pub mod bpf;
pub mod routes;
