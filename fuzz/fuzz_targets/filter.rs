//! A filter's text, and a socket to match.

#![no_main]

use libfuzzer_sys::fuzz_target;
use springtide_collector::parts::Filter;
use springtide_collector::parts::SocketView;

fuzz_target!(|input: (&str, [u8; 72])| {
    let (text, payload) = input;
    if let Ok(filter) = text.parse::<Filter>() {
        assert!(filter.bytecode().len() % 4 == 0 && filter.bytecode().len() < 65_000);
        if let Some(view) = SocketView::parse(&payload) {
            filter.matches(&view);
        }
    }
});
