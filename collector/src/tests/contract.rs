//! The encoder, the field table and the .proto file agree.
//!
//! The expected values come from lists of the kernel's structures in the order of their members, as the headers have
//! them, without offsets; what was encoded is read back by a protobuf reader that knows the .proto file only.
//!
//! Longer than 400 lines: the three descriptions of a sample that it compares stand side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, Value as Reflected};
use springtide_core::layout::{self, LAYOUT, Record};
use zerocopy::{FromBytes, IntoBytes};

use super::layouts::{ATTRIBUTES, INET_DIAG_MSG, Layout};
use crate::kernel::flights::Flight;
use crate::kernel::inet_diag::{SocketView, attribute};
use crate::kernel::starts::Start;
use crate::sample::encode::{AccEcn, Encoder, Identity};
use crate::sample::fields::{self, by_hand, message};
use crate::sample::json::write_json;
use crate::sample::proto::{SampleKind, TcpSample};
use crate::sample::value::Value;
use crate::sample::wire::SLOT;
use crate::stats::Stats;

static SAMPLE: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let files = protox::compile([root.join("springtide/v1/tcp_sample.proto")], [&root]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    pool.get_message_by_name("springtide.v1.TcpSample").unwrap()
});

#[test]
fn the_table_has_exactly_the_fields_of_the_proto_file() {
    let in_proto: BTreeSet<_> = SAMPLE
        .fields()
        .map(|field| (field.number(), field.name().to_owned()))
        .collect();
    let table = fields::PARTS.iter().copied().flatten();
    let in_table: BTreeSet<_> = table
        .clone()
        .map(|field| (field.number, field.name.to_owned()))
        .collect();
    assert_eq!(in_table, in_proto);
    assert_eq!(
        table.count(),
        in_proto.len(),
        "a field is in the table once"
    );
}

#[test]
fn the_table_has_the_types_of_the_proto_file() {
    for part in fields::PARTS {
        for field in *part {
            let kind = SAMPLE.get_field(field.number).unwrap().kind();
            let type_name = match kind {
                Kind::Uint32 | Kind::Enum(_) => "uint32",
                Kind::Uint64 => "uint64",
                Kind::Int64 => "int64",
                Kind::Bool => "bool",
                Kind::String => "string",
                Kind::Bytes => "bytes",
                other => panic!("{}: the encoder has no {other:?}", field.name),
            };
            assert_eq!(field.type_name, type_name, "{}", field.name);
        }
    }
}

#[test]
fn what_the_kernel_may_not_give_is_optional() {
    let always: BTreeSet<_> = message::FIELDS
        .iter()
        .chain(by_hand::FIELDS)
        .map(|field| field.number)
        .collect();
    let given_by_hand = [
        "sample_weight",
        "congestion_algorithm",
        "ulp_name",
        "tcp_info_length",
    ];
    for field in SAMPLE.fields() {
        let optional = !always.contains(&field.number()) || given_by_hand.contains(&field.name());
        assert_eq!(field.supports_presence(), optional, "{}", field.name());
    }
}

type Numbers = BTreeMap<String, u64>;

/// The values of the members that lie within `bytes`.
fn read(layout: Layout, bytes: &[u8], into: &mut Numbers) {
    let mut bit = 0;
    for &(name, bits) in layout {
        let (start, end) = (bit, bit + bits as usize);
        bit = end;
        if name.is_empty() || end.div_ceil(8) > bytes.len() {
            continue;
        }
        let value = (start..end).rev().fold(0, |value, at| {
            value << 1 | u64::from(bytes[at / 8] >> (at % 8) & 1)
        });
        into.insert(
            name.to_owned(),
            if name == "v6only" {
                u64::from(value != 0)
            } else {
                value
            },
        );
    }
}

/// Every number of an encoded row, read with the .proto file alone.
fn reflected(row: &[u8]) -> (Numbers, DynamicMessage) {
    let message = DynamicMessage::decode(SAMPLE.clone(), row).unwrap();
    let mut numbers = Numbers::new();
    for field in SAMPLE.fields() {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        let number = match message.get_field(&field).as_ref() {
            Reflected::U32(value) => u64::from(*value),
            Reflected::U64(value) => *value,
            Reflected::I64(value) => u64::try_from(*value).unwrap(),
            Reflected::Bool(value) => u64::from(*value),
            Reflected::EnumNumber(value) => u64::try_from(*value).unwrap(),
            _ => continue,
        };
        numbers.insert(field.name().to_owned(), number);
    }
    (numbers, message)
}

fn identity() -> Identity {
    Identity {
        host: "ams-1".to_owned(),
        pop: "ams".to_owned(),
        boot_id: "b".repeat(36),
        netns: 4_026_531_833,
    }
}

/// Encodes one message's payload, if it describes a socket.
fn encoded(payload: &[u8], accecn: AccEcn) -> Option<(Vec<u8>, Stats)> {
    let mut encoder = Encoder::new(&identity(), 99, SampleKind::Poll, accecn);
    encoder.stamp(1_795_228_242_955_980);
    let mut stats = Stats::default();
    let mut slot = [0xaa; SLOT];
    let len = encoder.encode(&SocketView::parse(payload)?, &mut slot, &mut stats);
    Some((slot[..len].to_vec(), stats))
}

fn attribute_bytes(number: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(4 + content.len())
        .unwrap()
        .to_ne_bytes()
        .to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn layout_length(layout: Layout) -> usize {
    layout.iter().map(|(_, bits)| *bits as usize).sum::<usize>() / 8
}

prop_compose! {
    /// Bytes as numbers usually are: mostly zero, small or all ones.
    fn content(longest: usize)(
        bytes in prop::collection::vec(prop_oneof![4 => Just(0), 2 => any::<u8>(), 1 => Just(0xff)], 0..=longest)
    ) -> Vec<u8> {
        bytes
    }
}

/// An attribute of every kind or none, of the right length, shorter or longer.
fn attributes() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let each = |&(number, layout): &(u16, Layout)| {
        let length = layout_length(layout);
        let exact = prop::collection::vec(any::<u8>(), length);
        prop::option::of(prop_oneof![exact, content(length + 20)])
            .prop_map(move |bytes| bytes.map(|bytes| (number, bytes)))
    };
    let all: Vec<_> = ATTRIBUTES.iter().map(each).collect();
    all.prop_map(|attributes| attributes.into_iter().flatten().collect::<Vec<_>>())
        .prop_shuffle()
}

proptest! {
    #[test]
    fn every_value_of_the_kernel_arrives(
        ipv6: bool,
        mut header in prop::collection::vec(any::<u8>(), 72),
        attributes in attributes(),
        algorithm in prop::option::of("[a-z_0-9]{0,15}"),
        ulp in prop::option::of("[a-z]{1,15}"),
        two_numbers: bool,
    ) {
        header[0] = if ipv6 { 10 } else { 2 };
        let mut payload = header.clone();
        for (number, content) in &attributes {
            payload.extend(attribute_bytes(*number, content));
        }
        if let Some(name) = &algorithm {
            payload.extend(attribute_bytes(attribute::CONG, &[name.as_bytes(), &[0]].concat()));
        }
        if let Some(name) = &ulp {
            let inner = attribute_bytes(attribute::ULP_INFO_NAME, &[name.as_bytes(), &[0]].concat());
            payload.extend(attribute_bytes(attribute::ULP_INFO, &inner));
        }
        let accecn = if two_numbers { AccEcn::TwoNumbers } else { AccEcn::Unknown };
        let (row, stats) = encoded(&payload, accecn).unwrap();

        let mut expected = Numbers::new();
        read(INET_DIAG_MSG, &header, &mut expected);
        expected.insert("src_port".to_owned(), u16::from_be_bytes([header[4], header[5]]).into());
        expected.insert("dst_port".to_owned(), u16::from_be_bytes([header[6], header[7]]).into());
        for (name, value) in [
            ("time_unix_us", 1_795_228_242_955_980), ("netns", 4_026_531_833), ("poll_sequence", 99), ("kind", 1),
        ] {
            expected.insert(name.to_owned(), value);
        }
        for (number, content) in &attributes {
            let (_, layout) = ATTRIBUTES.iter().find(|(known, _)| known == number).unwrap();
            read(layout, content, &mut expected);
            if *number == attribute::INFO {
                expected.insert("tcp_info_length".to_owned(), content.len() as u64);
                if !two_numbers {
                    expected.remove("accecn_fail_mode");
                    expected.remove("accecn_opt_seen");
                }
            }
        }
        let (numbers, reflected) = reflected(&row);
        prop_assert_eq!(&numbers, &expected);

        let address = |at: usize| {
            if ipv6 { return header[at..at + 16].to_vec(); }
            [&[0; 10][..], &[0xff; 2], &header[at..at + 4]].concat()
        };
        let sample = TcpSample::decode(&row[..]).unwrap();
        prop_assert_eq!(&sample.src_ip, &address(8));
        prop_assert_eq!(&sample.dst_ip, &address(24));
        prop_assert_eq!(&sample.congestion_algorithm, &algorithm);
        prop_assert_eq!(&sample.ulp_name, &ulp);
        prop_assert_eq!((&*sample.host, &*sample.pop, sample.boot_id.len()), ("ams-1", "ams", 36));
        prop_assert_eq!(stats.attributes_malformed + stats.attributes_skipped, 0);
        prop_assert!(reflected.unknown_fields().next().is_none());

        // The reader that the program itself uses sees the same numbers, and its JSON has them all.
        let mut visited = Numbers::new();
        fields::visit(&sample, &mut |name, value| {
            let number = match value {
                Value::Unsigned(number) => number,
                Value::Signed(number) => u64::try_from(number).unwrap(),
                Value::Bool(flag) => flag.into(),
                Value::Text(_) | Value::Bytes(_) => return,
            };
            visited.insert(name.to_owned(), number);
        });
        prop_assert_eq!(&visited, &expected);
        let mut json = String::new();
        write_json(&sample, &mut json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (name, value) in &expected {
            match &json[name] {
                serde_json::Value::Number(number) => prop_assert_eq!(number.as_u64(), Some(*value), "{}", name),
                serde_json::Value::Bool(flag) => prop_assert_eq!(u64::from(*flag), *value, "{}", name),
                other => prop_assert!(matches!(&**name, "state" | "kind") && other.is_string(), "{}: {}", name, other),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_make_a_readable_sample_or_none(family in prop_oneof![Just(2), Just(10), any::<u8>()], mut payload: Vec<u8>) {
        if let Some(first) = payload.first_mut() {
            *first = family;
        }
        if let Some((row, _)) = encoded(&payload, AccEcn::TwoNumbers) {
            TcpSample::decode(&row[..]).unwrap();
        }
    }

    #[test]
    fn arbitrary_attributes_make_a_readable_sample(
        attributes in prop::collection::vec((0..25_u16, prop::collection::vec(any::<u8>(), 0..300)), 0..40),
        cut in 0..50_usize,
    ) {
        let mut payload = vec![0; 72];
        payload[0] = 10;
        for (number, content) in &attributes {
            payload.extend(attribute_bytes(*number, content));
        }
        payload.truncate(payload.len().saturating_sub(cut).max(72));
        let (row, _) = encoded(&payload, AccEcn::TwoNumbers).unwrap();
        TcpSample::decode(&row[..]).unwrap();
    }
}

fn payload_with(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut payload = vec![0; 72];
    payload[0] = 2;
    for (number, content) in attributes {
        payload.extend(attribute_bytes(*number, content));
    }
    payload
}

#[test]
fn an_unknown_attribute_is_skipped_and_counted() {
    let payload = payload_with(&[
        (1, &[0; 16]),
        (attribute::TOS, &[8]),
        (24, &[1, 2, 3]),
        (999, &[]),
    ]);
    let (row, stats) = encoded(&payload, AccEcn::Unknown).unwrap();
    assert_eq!(TcpSample::decode(&row[..]).unwrap().tos, Some(8));
    assert_eq!(
        stats,
        Stats {
            attributes_skipped: 3,
            ..Stats::default()
        }
    );
}

#[test]
fn a_newer_and_longer_tcp_info_is_read_as_far_as_it_is_known() {
    let info = vec![1; 400];
    let (row, stats) = encoded(
        &payload_with(&[(attribute::INFO, &info)]),
        AccEcn::TwoNumbers,
    )
    .unwrap();
    let sample = TcpSample::decode(&row[..]).unwrap();
    assert_eq!(
        (sample.tcp_info_length, sample.accecn_opt_seen),
        (Some(400), Some(0x0101))
    );
    assert_eq!(
        stats,
        Stats {
            tcp_info_longer: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn the_word_that_kernels_lay_out_differently_is_absent_unless_the_kernel_is_known() {
    let info = vec![1; 280];
    for (release, seen) in [
        ("6.18.44-generic", Some(0x0101)),
        ("6.18", Some(0x0101)),
        ("6.19.0", None),
        ("7.0.1-rc2", None),
        ("", None),
        ("next", None),
    ] {
        let payload = payload_with(&[(attribute::INFO, &info)]);
        let (row, stats) = encoded(&payload, AccEcn::of_release(release)).unwrap();
        let sample = TcpSample::decode(&row[..]).unwrap();
        assert_eq!(
            (sample.accecn_fail_mode, sample.accecn_opt_seen),
            (seen, seen),
            "{release}"
        );
        assert_eq!(
            (sample.received_ce_bytes, sample.tcp_info_length),
            (Some(0x0101_0101), Some(280))
        );
        assert_eq!(stats, Stats::default());
    }
}

#[test]
fn a_truncated_or_repeated_attribute_is_counted_and_the_rest_is_read() {
    let twice = payload_with(&[
        (attribute::TOS, &[8]),
        (attribute::TOS, &[9]),
        (attribute::TCLASS, &[7]),
    ]);
    let (row, stats) = encoded(&twice, AccEcn::Unknown).unwrap();
    let sample = TcpSample::decode(&row[..]).unwrap();
    assert_eq!((sample.tos, sample.tclass), (Some(8), Some(7)));
    assert_eq!(
        stats,
        Stats {
            attributes_malformed: 1,
            ..Stats::default()
        }
    );

    let mut cut = payload_with(&[(attribute::TOS, &[8]), (attribute::INFO, &[1; 224])]);
    cut.truncate(cut.len() - 1);
    let (row, stats) = encoded(&cut, AccEcn::Unknown).unwrap();
    let sample = TcpSample::decode(&row[..]).unwrap();
    assert_eq!((sample.tos, sample.tcp_info_length), (Some(8), None));
    assert_eq!(
        stats,
        Stats {
            attributes_malformed: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn a_name_that_is_not_text_or_too_long_is_left_out() {
    for name in [&b"\xff\xfe"[..], b"an_algorithm_of_17"] {
        let (row, stats) =
            encoded(&payload_with(&[(attribute::CONG, name)]), AccEcn::Unknown).unwrap();
        assert_eq!(
            TcpSample::decode(&row[..]).unwrap().congestion_algorithm,
            None
        );
        assert_eq!(
            stats,
            Stats {
                attributes_malformed: 1,
                ..Stats::default()
            }
        );
    }
}

#[test]
fn times_at_the_ends_of_the_range_keep_their_place() {
    for (stamped, shown) in [(-5, 0), (0, 0), (i64::MAX, (1 << 56) - 1)] {
        let mut encoder = Encoder::new(&identity(), 1, SampleKind::Close, AccEcn::Unknown);
        encoder.stamp(stamped);
        let mut slot = [0; SLOT];
        let payload = payload_with(&[]);
        let len = encoder.encode(
            &SocketView::parse(&payload).unwrap(),
            &mut slot,
            &mut Stats::default(),
        );
        let sample = TcpSample::decode(&slot[..len]).unwrap();
        assert_eq!(
            (sample.time_unix_us, &*sample.host, sample.kind()),
            (shown, "ams-1", SampleKind::Close)
        );
    }
}

#[test]
fn names_at_their_limits_fit_a_row_with_every_attribute() {
    let identity = Identity {
        host: "ü".repeat(200),
        pop: "p".repeat(99),
        boot_id: "b".repeat(99),
        netns: u64::MAX,
    };
    let encoder = Encoder::new(&identity, u64::MAX, SampleKind::Poll, AccEcn::TwoNumbers);
    let contents: Vec<_> = ATTRIBUTES
        .iter()
        .map(|(number, layout)| (*number, vec![0xff; layout_length(layout)]))
        .collect();
    let mut attributes: Vec<(u16, &[u8])> = contents
        .iter()
        .map(|(number, content)| (*number, &content[..]))
        .collect();
    let ulp = attribute_bytes(attribute::ULP_INFO_NAME, &[b'u'; 16]);
    attributes.extend([
        (attribute::CONG, &[b'c'; 16][..]),
        (attribute::ULP_INFO, &ulp),
    ]);
    let mut payload = payload_with(&attributes);
    payload[1..72].fill(0xff);
    let mut slot = [0; SLOT];
    let len = encoder.encode(
        &SocketView::parse(&payload).unwrap(),
        &mut slot,
        &mut Stats::default(),
    );
    let sample = TcpSample::decode(&slot[..len]).unwrap();
    assert_eq!(
        (sample.host.len(), sample.pop.len(), sample.boot_id.len()),
        (252, 63, 36)
    );
    assert_eq!(
        (sample.ulp_name.as_deref(), sample.dctcp_ab_tot),
        (Some("uuuuuuuuuuuuuuuu"), Some(u32::MAX))
    );
    assert_eq!(sample.busy_time, Some(u64::MAX));
}

/// The number of the map in whose storages start values stand.
const MAP: u32 = 77;

/// Length of what a storage has, bytes.
const VALUE: usize = size_of::<layout::Start>();

/// A storage's value: arm, step, flags and layout in `small`, zeros in what no sample has.
fn value(round: i64, window: u32, rate: u32, small: [u8; 4]) -> Vec<u8> {
    value_over(&[0; VALUE], round, window, rate, small)
}

/// The same over other bytes.
fn value_over(rest: &[u8], round: i64, window: u32, rate: u32, small: [u8; 4]) -> Vec<u8> {
    let [arm, step, flags, layout] = small;
    let start = layout::Start {
        round,
        window,
        rate,
        arm,
        step,
        flags,
        layout,
        ..layout::Start::read_from_bytes(rest).unwrap()
    };
    start.as_bytes().to_vec()
}

/// A storage as the kernel puts it: the map's number, a padding, the value.
fn storage(map: u32, value: &[u8]) -> Vec<u8> {
    let inner = [
        attribute_bytes(2, &map.to_ne_bytes()),
        attribute_bytes(1, &[]),
        attribute_bytes(3, value),
    ];
    attribute_bytes(1, &inner.concat())
}

/// A row's start values, as the contract has them: the round, then window, rate, arm and step.
type Started = (Option<u64>, [Option<u32>; 4]);

fn of_sample(sample: &TcpSample) -> Started {
    let small = [
        sample.started_window,
        sample.started_rate,
        sample.started_arm,
        sample.started_step,
    ];
    (sample.started_round, small)
}

fn started(storages: &[u8], map: Option<u32>) -> (Started, Stats) {
    let encoder = Encoder::new(&identity(), 1, SampleKind::Poll, AccEcn::Unknown).with_starts(map);
    let mut stats = Stats::default();
    let mut slot = [0xaa; SLOT];
    let payload = payload_with(&[(20, storages), (attribute::TOS, &[8])]);
    let view = SocketView::parse(&payload).unwrap();
    let (len, noted) = encoder.encode_noting(&view, &mut slot, &mut stats);
    let sample = TcpSample::decode(&slot[..len]).unwrap();
    assert_eq!(sample.tos, Some(8), "what stands behind it is read");
    assert_eq!(noted.start.is_some(), sample.started_round.is_some());
    (of_sample(&sample), stats)
}

const UNKNOWN: Started = (None, [None; 4]);

proptest! {
    #[test]
    fn start_values_arrive_whole_and_a_close_has_them_again(
        round in 0..=i64::from(u32::MAX),
        window in 0..=65_535_u32,
        rate: u32,
        arm in 0..=1_u8,
        step in 0..=2_u8,
        flags: u8,
        rest in prop::collection::vec(any::<u8>(), VALUE),
        others in prop::collection::vec((0..MAP, prop::collection::vec(any::<u8>(), 0..60)), 0..4),
    ) {
        let mut storages: Vec<u8> =
            others.iter().flat_map(|(map, value)| storage(*map, value)).collect();
        storages.extend(storage(MAP, &value_over(&rest, round, window, rate, [arm, step, flags, LAYOUT])));
        let expected = (
            Some(round as u64),
            [Some(window), Some(rate), Some(arm.into()), Some(step.into())],
        );
        let (found, stats) = started(&storages, Some(MAP));
        prop_assert_eq!(found, expected);
        prop_assert_eq!((stats.start_values, stats.start_values_unreadable), (1, 0));
        // Who has not asked for them has other maps' storages at most.
        let (found, stats) = started(&storages, None);
        prop_assert_eq!((found, stats.attributes_skipped), (UNKNOWN, 1));
        prop_assert_eq!(started(&storages, Some(MAP + 1)).0, UNKNOWN);

        let known = Start::known(LAYOUT, round, (window, rate), (arm, step), 0).unwrap();
        let encoder = Encoder::new(&identity(), 1, SampleKind::Close, AccEcn::Unknown);
        let (payload, mut slot) = (payload_with(&[]), [0; SLOT]);
        let view = SocketView::parse(&payload).unwrap();
        let len = encoder.encode_close(&view, Some("bbr"), Some(&known), &mut slot, &mut Stats::default());
        prop_assert_eq!(of_sample(&TcpSample::decode(&slot[..len]).unwrap()), expected);
    }

    #[test]
    fn start_values_out_of_their_range_are_unknown_and_counted(
        wrong in prop_oneof![
            (i64::MIN..0).prop_map(|round| value(round, 10, 0, [0, 0, 0, LAYOUT])),
            (1_i64 << 32..=i64::MAX).prop_map(|round| value(round, 10, 0, [0, 0, 0, LAYOUT])),
            (65_536..=u32::MAX).prop_map(|window| value(1, window, 0, [0, 0, 0, LAYOUT])),
            (2..=u8::MAX).prop_map(|arm| value(1, 10, 0, [arm, 0, 0, LAYOUT])),
            (3..=u8::MAX).prop_map(|step| value(1, 10, 0, [0, step, 0, LAYOUT])),
            (1..=u8::MAX)
                .prop_filter("another one", |layout| *layout != LAYOUT)
                .prop_map(|layout| value(1, 10, 0, [0, 0, 0, layout])),
            prop::collection::vec(any::<u8>(), 0..VALUE),
            prop::collection::vec(any::<u8>(), VALUE + 1..VALUE + 9),
        ],
    ) {
        let (found, stats) = started(&storage(MAP, &wrong), Some(MAP));
        prop_assert_eq!(found, UNKNOWN);
        prop_assert_eq!((stats.start_values, stats.start_values_unreadable), (0, 1));
    }

    #[test]
    fn any_bytes_as_storages_are_unknown_or_within_bounds(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0..40_usize,
        byte: u8,
    ) {
        let (found, stats) = started(&bytes, Some(MAP));
        prop_assert_eq!(found, UNKNOWN);
        prop_assert!(stats.start_values_unreadable <= 1);
        // A right one with one byte changed, or cut.
        let mut storages = storage(MAP, &value(1, 10, 5, [1, 2, 0, LAYOUT]));
        storages[at] = byte;
        for bytes in [&storages[..], &storages[..at]] {
            let ((round, [window, _, arm, step]), _) = started(bytes, Some(MAP));
            prop_assert!(round.is_none_or(|round| round <= u32::MAX.into()));
            prop_assert!(window.is_none_or(|window| window <= 65_535));
            prop_assert!(arm.is_none_or(|arm| arm <= 1) && step.is_none_or(|step| step <= 2));
        }
    }
}

#[test]
fn a_storage_that_the_program_has_not_filled_is_unknown() {
    for value in [vec![0; VALUE], value(1, 10, 5, [1, 0, 0, 0])] {
        let (found, stats) = started(&storage(MAP, &value), Some(MAP));
        assert_eq!((found, stats), (UNKNOWN, Stats::default()));
    }
}

/// A record in which everything happened.
fn whole_record() -> Record {
    Record {
        cookie: 77,
        round: 1_767_312_300,
        acked_bytes: 250_000,
        length: 64,
        window: 60,
        rate: 5_000_000,
        at_once: 2,
        first_resent: 1,
        resent: 4,
        segments: 180,
        handshake_us: 102_000,
        min_rtt_us: 101_000,
        first_us: 103_000,
        acked_10k_us: 104_000,
        acked_50k_us: 130_000,
        acked_100k_us: 160_000,
        lifted_us: 140_000,
        lived_us: 900_000,
        train_bytes: 13_032,
        train_us: 2_100,
        first_segments: 72,
        handshake_timeout_ms: 250,
        handshake_resent: 1,
        copied_bytes: 20_000,
        copied_segments: 15,
        dsack_dups: 13,
        arm: 1,
        step: 2,
        layout: LAYOUT,
        ..Record::default()
    }
}

#[test]
fn what_a_record_has_stands_in_its_row() {
    let record = whole_record();
    let flight = Flight::parse(record.as_bytes()).unwrap();
    let encoder = Encoder::new(&identity(), 1, SampleKind::FirstFlight, AccEcn::Unknown);
    let mut slot = [0; SLOT];
    let len = encoder.encode_flight(&flight, &mut slot);
    let found = TcpSample::decode(&slot[..len]).unwrap();
    let expected = TcpSample {
        total_retrans: Some(4),
        bytes_acked: Some(250_000),
        min_rtt: Some(101_000),
        data_segs_out: Some(180),
        started_round: Some(1_767_312_300),
        started_window: Some(60),
        started_rate: Some(5_000_000),
        started_arm: Some(1),
        started_step: Some(2),
        started_at_once: Some(2),
        started_prefix_length: Some(64),
        first_flight_retrans: Some(1),
        handshake_rtt: Some(102_000),
        first_acked_time: Some(103_000),
        acked_10k_time: Some(104_000),
        acked_50k_time: Some(130_000),
        acked_100k_time: Some(160_000),
        cap_lifted_time: Some(140_000),
        lived_time: Some(900_000),
        train_bytes: Some(13_032),
        train_time: Some(2_100),
        first_flight_segs: Some(72),
        handshake_timeout_ms: Some(250),
        handshake_retrans: Some(1),
        copied_bytes: Some(20_000),
        copied_segments: Some(15),
        dsack_dups: Some(13),
        ..found.clone()
    };
    assert_eq!((found.cookie, &found), (77, &expected));
}
