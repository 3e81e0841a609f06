"""BBR or the kernel's default for each PoP and client prefix (the selective-BBR article)."""
