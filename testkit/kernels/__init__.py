"""Real kernels in qemu, by emulation: what an edge's programs do on each of them."""
