//! Time to decode and encode one socket, from captures of four kernels: `cargo bench -p springtide-collector`.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use springtide_collector::parts::Batch;
use springtide_collector::parts::SampleKind;
use springtide_collector::parts::SocketView;
use springtide_collector::parts::Stats;
use springtide_collector::parts::netlink::{self, Body};
use springtide_collector::parts::{AccEcn, Encoder, Identity};
use springtide_collector::parts::{COOKED_HEADER, PcapReader};

const PASSES: usize = 400;
const RUNS: usize = 11;

fn main() {
    for name in [
        "linux-4.19.319",
        "linux-5.15.164",
        "linux-6.10.3",
        "linux-6.6.44-bbr",
    ] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/{name}.pcap"));
        let datagrams =
            datagrams(&std::fs::read(&path).expect("the capture is part of the repository"));
        let mut per_socket: Vec<f64> = (0..RUNS)
            .map(|_| nanoseconds_per_socket(&datagrams))
            .collect();
        per_socket.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.0} ns a socket (median of {RUNS} runs, best {:.0})",
            per_socket[RUNS / 2],
            per_socket[0]
        );
    }
}

fn datagrams(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(Cursor::new(capture)).expect("the capture is a pcap file");
    let mut datagrams = Vec::new();
    while let Some(packet) = reader.next_packet().expect("the capture is whole") {
        datagrams.push(packet.bytes[COOKED_HEADER..].to_vec());
    }
    datagrams
}

/// One run as the poller does it, without the kernel and without a sink.
fn nanoseconds_per_socket(datagrams: &[Vec<u8>]) -> f64 {
    let identity = Identity {
        host: "ams-1".to_owned(),
        pop: "ams".to_owned(),
        boot_id: "2fe7e5e7-bc4c-4d9f-9b75-486983d714f6".to_owned(),
        netns: 4_026_531_833,
    };
    let mut encoder = Encoder::new(&identity, 2_248_506, SampleKind::Poll, AccEcn::TwoNumbers);
    let (mut batch, mut stats) = (Batch::default(), Stats::default());
    let start = Instant::now();
    for pass in 0..PASSES {
        encoder.stamp(1_795_228_242_955_980 + pass as i64);
        for datagram in datagrams {
            for message in netlink::messages(black_box(datagram)).map_while(Result::ok) {
                let Body::Socket(payload) = message.body else {
                    continue;
                };
                let Some(view) = SocketView::parse(payload) else {
                    continue;
                };
                batch.push(|slot| encoder.encode(&view, slot, &mut stats));
                stats.rows += 1;
                if batch.is_full() {
                    black_box(batch.message());
                    batch.clear();
                }
            }
        }
    }
    start.elapsed().as_nanos() as f64 / stats.rows as f64
}
