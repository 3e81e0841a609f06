//! How a bundle reaches the kernel.
