//! A record of first flights: whatever it holds, a row is made or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_collector::parts::{AccEcn, Batch, Encoder, Flight, Identity, SampleKind};

fuzz_target!(|record: &[u8]| {
    if let Some(flight) = Flight::parse(record) {
        let kind = SampleKind::FirstFlight;
        let encoder = Encoder::new(&Identity::default(), 1, kind, AccEcn::TwoNumbers);
        Batch::default().push(|slot| encoder.encode_flight(&flight, slot));
    }
});
