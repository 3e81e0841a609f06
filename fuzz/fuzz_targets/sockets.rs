//! A netlink datagram of sockets or close events: whatever it holds, rows are made or faults counted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_collector::parts::Batch;
use springtide_collector::parts::SocketView;
use springtide_collector::parts::netlink::{self, Body};
use springtide_collector::parts::digest;
use springtide_collector::parts::{AccEcn, Encoder, Identity};
use springtide_collector::parts::SampleKind;
use springtide_collector::parts::Start;
use springtide_collector::parts::Stats;

fuzz_target!(|datagram: &[u8]| {
    let encoder = Encoder::new(
        &Identity::default(),
        1,
        SampleKind::Poll,
        AccEcn::TwoNumbers,
    )
    .with_starts(Some(1));
    let (mut batch, mut stats) = (Batch::default(), Stats::default());
    for message in netlink::messages(datagram).map_while(Result::ok) {
        let Body::Socket(payload) = message.body else {
            continue;
        };
        let Some(view) = SocketView::parse(payload) else {
            continue;
        };
        digest(&view);
        batch.push(|slot| encoder.encode_noting(&view, slot, &mut stats).0);
        if batch.is_full() {
            batch.clear();
        }
        batch.push(|slot| encoder.encode_close(&view, Some("cubic"), Some(&Start::default()), slot, &mut stats));
        if batch.is_full() {
            batch.clear();
        }
    }
});
