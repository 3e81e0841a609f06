//! A bundle's bytes, as they come before anything of them is trusted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_edge::bundle;

fuzz_target!(|raw: &[u8]| {
    match bundle::parse(raw, "b.json", "ams-1", 1_767_323_222) {
        Ok(bundle) => {
            assert!(bundle.entries.is_sorted_by_key(|entry| entry.prefix));
            assert!(bundle.expires_at > bundle.created_at);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.starts_with("b.json: ") && !line.contains('\n'), "{line}");
        }
    }
});
