//! A signature and a file of allowed signers, split at the first zero byte. No input may be taken for a good signature:
//! the content is one that nobody has signed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_edge::signature::{Verdict, check};

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (armored, signers) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    assert_ne!(check(b"nobody has signed this", armored, signers, 1_767_323_222), Verdict::Allowed);
});
