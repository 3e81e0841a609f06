//! A capture file, decoded as `springtide-collector decode` does.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_collector::parts::replay;
use springtide_collector::parts::{AccEcn, Identity};
use springtide_collector::parts::NullSink;
use springtide_collector::parts::Stats;

fuzz_target!(|capture: &[u8]| {
    // An error is an answer too.
    let _ = replay(
        capture,
        &Identity::default(),
        AccEcn::Unknown,
        &mut NullSink,
        &mut Stats::default(),
        |_, _| {},
    );
});
