//! A bundle as the maps want it. Pure.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::error::{Error, Result};
use super::prefixes::{
    ALL, Cover, LOOPBACK_4, LOOPBACK_6, MAPPED, hides, length_of, mask, prefix_of,
};
use crate::bundle::{Bundle, Enforce};
use springtide_core::layout::{
    self, ALGORITHM_NAME, ALGORITHMS, Address, LEAVE_ALONE, LeftAlone, NOTHING, OWN_SIDES, OwnSide,
    Prefix, Settings, UNNAMED,
};

/// A bundle, ready to be written into maps.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) settings: Settings,
    pub(super) left_alone: LeftAlone,
    pub(super) values: Vec<(Prefix, layout::Entry)>,
    pub(super) entries: u32,
    pub(super) excluded: u32,
    pub(super) receive_windows: bool,
}

/// Inputs beside the bundle: the clocks, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seconds since the epoch.
    pub(super) now: i64,
    /// CLOCK_BOOTTIME at that second's beginning.
    pub(super) boot_ns: u64,
    /// Ticks of the kernel's timers in a second.
    pub(super) hz: u32,
    pub(super) generation: u64,
    pub(super) slot: u32,
}

/// Raises where the bundle names more algorithms than the program has room for, or one with an impossible name.
pub(super) fn encode(bundle: &Bundle, moment: Moment) -> Result<Encoded> {
    let algorithms = algorithms(bundle)?;
    let excluded: Vec<Prefix> = bundle
        .enforce
        .excluded
        .iter()
        .map(|one| prefix_of(one))
        .collect();
    let cover = Cover::of(&excluded);
    let slot = u8::try_from(moment.slot).unwrap_or(u8::MAX);
    let mut values: Vec<(Prefix, layout::Entry)> =
        Vec::with_capacity(bundle.entries.len() + excluded.len() + 1);
    for entry in &bundle.entries {
        let prefix = prefix_of(&entry.prefix);
        if !cover.covers(&prefix) {
            let algorithm = entry
                .congestion
                .as_ref()
                .and_then(|one| algorithms.get(one.algorithm.as_str()));
            let value = layout::Entry {
                length: length_of(&prefix),
                slot,
                algorithm: algorithm.copied().unwrap_or(0),
                ..layout::Entry::of(entry)
            };
            values.push((prefix, value));
        }
    }
    let entries = values.len();
    let receive_windows = values.iter().any(|(_, one)| one.receive_window > 0);
    let alone = |prefix: Prefix, flags| {
        (
            prefix,
            layout::Entry {
                flags,
                slot,
                length: length_of(&prefix),
                ..layout::Entry::default()
            },
        )
    };
    values.extend(excluded.iter().map(|prefix| alone(*prefix, LEAVE_ALONE)));
    let beside = beside(&values, bundle.enforce.record_permille.unwrap_or(0) > 0);
    values.extend(beside.iter().map(|&(prefix, flags)| alone(prefix, flags)));
    Ok(Encoded {
        settings: settings_of(bundle, moment, &algorithms),
        left_alone: left_alone(bundle)?,
        values,
        entries: u32::try_from(entries).unwrap_or(u32::MAX),
        excluded: u32::try_from(excluded.len()).unwrap_or(u32::MAX),
        receive_windows,
    })
}

/// Entries that no bundle has. Where connections leave records, all those do that leave this host: those to what the
/// bundle does not name start as the kernel makes them, and show what their path carries.
fn beside(values: &[(Prefix, layout::Entry)], are_recorded: bool) -> Vec<(Prefix, u8)> {
    let hidden = values.iter().any(|(prefix, _)| hides(prefix));
    let wanted = match (are_recorded, hidden) {
        (true, _) => vec![
            (ALL, UNNAMED),
            // An IPv6 prefix over the mapped addresses takes no IPv4.
            (MAPPED, UNNAMED),
            (prefix_of(&LOOPBACK_4), NOTHING),
            (prefix_of(&LOOPBACK_6), NOTHING),
        ],
        (false, true) => vec![(MAPPED, NOTHING)],
        (false, false) => Vec::new(),
    };
    wanted
        .into_iter()
        .filter(|(prefix, _)| !values.iter().any(|(known, _)| known == prefix))
        .collect()
}

fn algorithms(bundle: &Bundle) -> Result<BTreeMap<&str, u8>> {
    let mut found = BTreeMap::new();
    for congestion in bundle
        .entries
        .iter()
        .filter_map(|entry| entry.congestion.as_ref())
    {
        let name = congestion.algorithm.as_str();
        if name.is_empty() || name.len() >= ALGORITHM_NAME || name.contains('\0') {
            return Err(Error::Bundle(format!(
                "congestion control {name:?} is not a name that a kernel can have: use 1 to 15 bytes"
            )));
        }
        found.insert(name, 0);
    }
    if found.len() > ALGORITHMS {
        return Err(Error::Bundle(format!(
            "{} congestion controls in one bundle: the program has room for {ALGORITHMS}",
            found.len()
        )));
    }
    for (number, place) in (1..).zip(found.values_mut()) {
        *place = number;
    }
    Ok(found)
}

fn settings_of(bundle: &Bundle, moment: Moment, algorithms: &BTreeMap<&str, u8>) -> Settings {
    let enforce = &bundle.enforce;
    let left_s = u64::try_from(bundle.expires_at.saturating_sub(moment.now)).unwrap_or(0);
    let mut names = [[0; ALGORITHM_NAME]; ALGORITHMS];
    for (name, number) in algorithms {
        names[usize::from(*number) - 1][..name.len()].copy_from_slice(name.as_bytes());
    }
    Settings {
        generation: moment.generation,
        round: bundle.round,
        deadline_ns: moment
            .boot_ns
            .saturating_add(left_s.saturating_mul(1_000_000_000))
            * u64::from(left_s > 0),
        seed: seed(&bundle.digest),
        half_life_ns: enforce
            .brake
            .map_or(0, |brake| u64::from(brake.half_life_s) * 1_000_000_000),
        lift_bytes: enforce.lift_bytes.unwrap_or(Enforce::LIFT_BYTES),
        lift_round_trips: enforce.lift_round_trips.unwrap_or(0),
        brake_permille: enforce.brake.map_or(0, |brake| brake.lost_permille),
        brake_connections: enforce.brake.map_or(0, |brake| brake.connections.max(1)),
        record_permille: enforce.record_permille.unwrap_or(0),
        hz: moment.hz,
        copies_permille: copies_permille(bundle),
        copies_dscp: enforce.copies_dscp.unwrap_or(0),
        algorithms: names,
    }
}

/// 0 where no entry asks for copies.
fn copies_permille(bundle: &Bundle) -> u32 {
    if bundle.entries.iter().all(|one| one.copied_bytes.is_none()) {
        return 0;
    }
    let asked = bundle.enforce.copies_permille;
    asked.unwrap_or(Enforce::COPIES_PERMILLE)
}

fn left_alone(bundle: &Bundle) -> Result<LeftAlone> {
    let found = &bundle.enforce.opted_out;
    let mut sides = [OwnSide::default(); OWN_SIDES];
    if found.len() > sides.len() {
        return Err(Error::Bundle(format!(
            "{} ports and networks are left alone in one bundle: the program has room for {OWN_SIDES}",
            found.len()
        )));
    }
    for (side, own) in sides.iter_mut().zip(found) {
        let network = own.prefix.map(|one| prefix_of(&one));
        let mask = network.map_or(0, |one| mask(one.length));
        *side = OwnSide {
            address: network.map_or(Address::default(), |one| one.address),
            mask: Address::new(mask.to_be_bytes()),
            port: own.port.map_or(0, u32::from),
        };
    }
    Ok(LeftAlone {
        count: u32::try_from(found.len()).unwrap_or(0),
        sides,
    })
}

/// Every bundle draws other shares, and all edges that have the same one draw by the same rule.
fn seed(digest: &str) -> u64 {
    let bytes: [u8; 32] = Sha256::digest(digest.as_bytes()).into();
    bytes
        .iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::prefixes::net_of;
    use super::*;
    use crate::bundle::{Brake, Congestion, Entry, Prefix as Network, Trial, Way};

    const MOMENT: Moment = Moment {
        now: 1000,
        boot_ns: 5,
        hz: 250,
        generation: 3,
        slot: 2,
    };

    fn entry(prefix: &str) -> Entry {
        Entry {
            initcwnd: Some(50),
            ..Entry::of(Network(prefix.parse().unwrap()))
        }
    }

    fn bundle(entries: Vec<Entry>, excluded: &[&str]) -> Bundle {
        Bundle {
            edge: "edge".into(),
            pop: "pop".into(),
            round: 7,
            policy_version: "0".into(),
            created_at: 900,
            expires_at: 1060,
            digest: "sha256:1".into(),
            enforce: Enforce {
                by: Way::Bpf,
                excluded: excluded
                    .iter()
                    .map(|one| Network(one.parse().unwrap()))
                    .collect(),
                ..Enforce::default()
            },
            entries,
            schema_version: 1,
        }
    }

    fn found(encoded: &Encoded) -> Vec<(String, u8)> {
        encoded
            .values
            .iter()
            .map(|(prefix, value)| (net_of(prefix).unwrap().to_string(), value.flags))
            .collect()
    }

    #[test]
    fn an_exclusion_removes_what_is_inside_and_cuts_what_is_around() {
        let entries = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16"]
            .map(entry)
            .to_vec();
        let encoded = encode(&bundle(entries, &["10.1.0.0/16"]), MOMENT).unwrap();
        let wanted = [
            ("10.0.0.0/8", 0),
            ("10.2.0.0/16", 0),
            ("10.1.0.0/16", LEAVE_ALONE),
        ];
        assert_eq!(
            found(&encoded),
            wanted.map(|(net, flags)| (net.to_owned(), flags))
        );
        assert_eq!((encoded.entries, encoded.excluded), (2, 1));
    }

    #[test]
    fn an_ipv6_prefix_over_the_mapped_addresses_is_kept_off_ipv4() {
        let encoded = encode(&bundle(vec![entry("::/0")], &[]), MOMENT).unwrap();
        assert_eq!(
            found(&encoded),
            [("::/0".to_owned(), 0), ("0.0.0.0/0".to_owned(), NOTHING)]
        );
        let own = encode(
            &bundle(vec![entry("::/0"), entry("0.0.0.0/0")], &[]),
            MOMENT,
        )
        .unwrap();
        assert_eq!(
            found(&own),
            [("::/0".to_owned(), 0), ("0.0.0.0/0".to_owned(), 0)]
        );
    }

    #[test]
    fn excluding_all_of_ipv6_excludes_no_ipv4() {
        let entries = ["10.0.0.0/8", "2001:db8::/32"].map(entry).to_vec();
        let encoded = encode(&bundle(entries, &["::/0"]), MOMENT).unwrap();
        let wanted = [
            ("10.0.0.0/8", 0),
            ("::/0", LEAVE_ALONE),
            ("0.0.0.0/0", NOTHING),
        ];
        assert_eq!(
            found(&encoded),
            wanted.map(|(net, flags)| (net.to_owned(), flags))
        );
    }

    #[test]
    fn where_connections_leave_records_all_do_but_this_hosts_own() {
        let mut given = bundle(vec![entry("::/0"), entry("127.0.0.0/8")], &["0.0.0.0/0"]);
        given.enforce.record_permille = Some(1);
        let encoded = encode(&given, MOMENT).unwrap();
        let wanted = [
            ("::/0", 0),
            ("0.0.0.0/0", LEAVE_ALONE),
            ("127.0.0.0/8", NOTHING),
            ("::1/128", NOTHING),
        ];
        assert_eq!(
            found(&encoded),
            wanted.map(|(net, flags)| (net.to_owned(), flags))
        );
        given = bundle(vec![], &[]);
        given.enforce.record_permille = Some(1000);
        let encoded = encode(&given, MOMENT).unwrap();
        let wanted = [
            ("::/0", UNNAMED),
            ("0.0.0.0/0", UNNAMED),
            ("127.0.0.0/8", NOTHING),
            ("::1/128", NOTHING),
        ];
        assert_eq!(
            found(&encoded),
            wanted.map(|(net, flags)| (net.to_owned(), flags))
        );
        assert_eq!((encoded.entries, encoded.excluded), (0, 0));
    }

    #[test]
    fn values_are_what_the_bundle_says() {
        let one = Entry {
            start_rate: Some(1 << 40),
            connection_rate: Some(9),
            congestion: Some(Congestion {
                algorithm: "bbr".into(),
                from_bytes: 100_000,
                always: false,
            }),
            receive_window: Some(90),
            default_resent: Some(7500),
            trial: Some(Trial {
                permille: 50,
                initcwnd: None,
                start_rate: Some(7),
                connection_rate: Some(5),
            }),
            ..entry("192.0.2.0/24")
        };
        let mut given = bundle(vec![one], &[]);
        given.enforce.brake = Some(Brake {
            lost_permille: 200,
            connections: 0,
            half_life_s: 60,
        });
        let encoded = encode(&given, MOMENT).unwrap();
        let value = encoded.values[0].1;
        assert_eq!(
            (value.window, value.rate, value.receive_window),
            (50, u32::MAX - 1, 90)
        );
        assert_eq!(
            (value.trial_permille, value.trial_window, value.trial_rate),
            (50, 0, 7)
        );
        assert_eq!((value.connection_rate, value.trial_connection_rate), (9, 5));
        assert_eq!(value.default_resent, 120);
        assert_eq!(
            (value.algorithm, value.from_bytes, value.length, value.slot),
            (1, 100_000, 120, 2)
        );
        let settings = encoded.settings;
        assert_eq!(&settings.algorithms[0][..4], b"bbr\0");
        assert_eq!(
            (settings.deadline_ns, settings.generation, settings.round),
            (60_000_000_005, 3, 7)
        );
        assert_eq!(
            (
                settings.brake_permille,
                settings.brake_connections,
                settings.half_life_ns
            ),
            (200, 1, 60_000_000_000)
        );
        assert!(encoded.receive_windows);
    }

    #[test]
    fn a_bundle_past_its_time_is_past_its_deadline() {
        let late = Moment {
            now: 1060,
            ..MOMENT
        };
        assert_eq!(
            encode(&bundle(vec![], &[]), late)
                .unwrap()
                .settings
                .deadline_ns,
            0
        );
    }

    #[test]
    fn impossible_algorithms_are_refused() {
        let named = |name: &str| Entry {
            congestion: Some(Congestion {
                algorithm: name.into(),
                from_bytes: 0,
                always: false,
            }),
            ..entry("192.0.2.0/24")
        };
        for name in ["", "sixteen_bytes_xx", "nul\0"] {
            let refused = encode(&bundle(vec![named(name)], &[]), MOMENT).unwrap_err();
            assert!(matches!(refused, Error::Bundle(_)), "{name}");
        }
        let many = (0..17).map(|number| named(&format!("a{number}"))).collect();
        assert!(matches!(
            encode(&bundle(many, &[]), MOMENT),
            Err(Error::Bundle(_))
        ));
    }
}
