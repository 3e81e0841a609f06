//! The text's errors, and the bytecode against [`Filter::matches`] on a machine that works as the kernel's does.

use proptest::prelude::*;

use super::bytecode::{D_COND, D_GE, D_LE, HOST, JMP, OP, S_COND, S_GE, S_LE};
use super::*;
use crate::kernel::inet_diag::{AF_INET6, HEADER};

fn message(family: u8, source: ([u8; 16], u16), destination: ([u8; 16], u16)) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[0] = family;
    bytes[4..6].copy_from_slice(&source.1.to_be_bytes());
    bytes[6..8].copy_from_slice(&destination.1.to_be_bytes());
    bytes[8..24].copy_from_slice(&source.0);
    bytes[24..40].copy_from_slice(&destination.0);
    bytes
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// inet_diag_bc_audit of net/ipv4/inet_diag.c, for the operations that are used here.
fn audit(program: &[u8]) -> Result<(), String> {
    let length = program.len();
    let on_chain = |target: usize| {
        let mut at = 0;
        while at < target {
            at += usize::from(program[at + 1]);
        }
        at == target
    };
    let mut at = 0;
    while at < length {
        let needs = match program[at] {
            JMP => OP,
            S_GE | S_LE | D_GE | D_LE => 2 * OP,
            S_COND | D_COND => {
                OP + HOST
                    + match program[at + OP] {
                        AF_INET => 4,
                        AF_INET6 => 16,
                        family => return Err(format!("family {family}")),
                    }
            }
            code => return Err(format!("operation {code}")),
        };
        let (yes, no) = (
            usize::from(program[at + 1]),
            usize::from(short(program, at + 2)),
        );
        let rest = length - at;
        for step in [yes, no] {
            if step < needs || step > rest + 4 || step % 4 != 0 {
                return Err(format!("a step of {step} at {at}"));
            }
        }
        if needs > rest || no < rest && !on_chain(at + no) {
            return Err(format!("the operation at {at}"));
        }
        at += yes;
    }
    Ok(())
}

/// inet_diag_bc_run: at the program's very end the socket is accepted.
fn accepts(program: &[u8], message: &[u8]) -> bool {
    let family = message[0];
    let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut at = 0;
    while at < program.len() {
        let argument = &program[at + OP..];
        let host = |address: &[u8]| {
            let (wanted, bits) = (argument[0], usize::from(argument[1]));
            let address = match (wanted, family) {
                (AF_INET, AF_INET6) if address[..12] == *b"\0\0\0\0\0\0\0\0\0\0\xff\xff" => {
                    &address[12..]
                }
                (wanted, family) if wanted != family => return false,
                _ => address,
            };
            (0..bits)
                .all(|bit| (address[bit / 8] ^ argument[HOST + bit / 8]) & (0x80 >> (bit % 8)) == 0)
        };
        let yes = match program[at] {
            JMP => false,
            S_GE => port(4) >= short(argument, 2),
            S_LE => port(4) <= short(argument, 2),
            D_GE => port(6) >= short(argument, 2),
            D_LE => port(6) <= short(argument, 2),
            S_COND => host(&message[8..24]),
            D_COND => host(&message[24..40]),
            code => unreachable!("operation {code}"),
        };
        at += if yes {
            usize::from(program[at + 1])
        } else {
            usize::from(short(program, at + 2))
        };
    }
    at == program.len()
}

fn ports() -> impl Strategy<Value = u16> {
    prop_oneof![
        prop::sample::select(vec![0_u16, 1, 79, 80, 443, 65_534, 65_535]),
        any::<u16>()
    ]
}

fn address_text() -> impl Strategy<Value = String> {
    let addresses = [
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.3",
        "0.0.0.0/0",
        "192.0.2.128/25",
        "::/0",
        "2001:db8::/32",
        "2001:db8:8000::/33",
        "2001:db8::1",
        "::ffff:0:0/96",
        "::ffff:10.1.2.0/120",
    ];
    prop::collection::vec(prop::sample::select(addresses.to_vec()), 1..3)
        .prop_map(|list| list.join(","))
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (
            prop::sample::select(vec!["sport", "dport", "port"]),
            ports(),
            ports()
        )
            .prop_map(|(what, a, b)| format!("{what} {}-{},{a}", a.min(b), a.max(b))),
        (
            prop::sample::select(vec!["src", "dst", "addr"]),
            address_text()
        )
            .prop_map(|(what, list)| format!("{what} {list}")),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" and "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" or "))),
            inner.prop_map(|inner| format!("not {inner}")),
        ]
    })
}

fn socket() -> impl Strategy<Value = Vec<u8>> {
    let v4 = prop::sample::select(vec![
        [10_u8, 1, 2, 3],
        [10, 1, 9, 9],
        [10, 9, 9, 9],
        [192, 0, 2, 200],
        [0, 0, 0, 0],
    ]);
    let v6 = prop::sample::select(vec![
        "2001:db8::1",
        "2001:db8:8000::1",
        "::ffff:10.1.2.3",
        "::ffff:192.0.2.200",
        "::",
        "fe80::1",
    ])
    .prop_map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
    let v4 = v4.prop_map(|address| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address);
        bytes
    });
    prop_oneof![
        (Just(AF_INET), v4.clone(), v4),
        (Just(AF_INET6), v6.clone(), v6),
    ]
    .prop_flat_map(|(family, source, destination)| {
        (ports(), ports())
            .prop_map(move |(from, to)| message(family, (source, from), (destination, to)))
    })
}

proptest! {
    #[test]
    fn the_bytecode_matches_the_filter(
        text in expression(),
        sockets in prop::collection::vec(socket(), 1..40),
    ) {
        let filter: Filter = text.parse().unwrap();
        prop_assert_eq!(audit(filter.bytecode()), Ok(()), "{}", text);
        for socket in &sockets {
            let view = SocketView::parse(socket).unwrap();
            prop_assert_eq!(accepts(filter.bytecode(), socket), filter.matches(&view), "{} {:?}", text, socket);
        }
    }

    #[test]
    fn any_text_is_a_filter_or_a_positioned_error(text in "(?s).{0,60}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_words_are_a_filter_or_a_positioned_error(
        words in prop::collection::vec(prop::sample::select(vec![
            "not", "and", "or", "(", ")", "sport", "dst", "80", "1-9,443", "10.0.0.0/8", "::1", "x",
        ]), 0..40),
    ) {
        let text = words.join(" ");
        match text.parse::<Filter>() {
            Ok(filter) => prop_assert_eq!(audit(filter.bytecode()), Ok(())),
            Err(error) => prop_assert!(error.column <= text.len() + 1),
        }
    }
}

#[test]
fn conditions_bind_as_people_read_them() {
    let plain = |text: &str| text.parse::<Filter>().unwrap().bytecode;
    assert_eq!(
        plain("dport 443 or src 10.0.0.0/8 and not sport 22"),
        plain("dport 443 or (src 10.0.0.0/8 and (not sport 22))")
    );
    assert_ne!(
        plain("(dport 443 or src 10.0.0.0/8) and not sport 22"),
        plain("dport 443 or src 10.0.0.0/8 and not sport 22")
    );
    assert_eq!(plain("port 443"), plain("sport 443 or dport 443"));
    assert_eq!(plain("not not(sport 443)"), plain("sport 443"));
    assert_eq!(plain("port 0-65535"), plain("not not port 0-65535"));
    assert!(plain("sport 0-65535").is_empty());
}

#[test]
fn an_error_has_its_place_and_cause() {
    let error = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
    for (text, message) in [
        (
            "",
            "column 1: a condition is missing: use sport, dport, port, src, dst or addr",
        ),
        (
            "dport 443 or",
            "column 13: a condition is missing: use sport, dport, port, src, dst or addr",
        ),
        (
            "dport https",
            "column 7: 'https' is not a valid port: use a number from 0 to 65535, or a range such as 8000-8099",
        ),
        (
            "dport 65536",
            "column 7: '65536' is not a valid port: use a number from 0 to 65535, or a range such as 8000-8099",
        ),
        ("sport 9-1", "column 7: '9-1' holds no port: write 1-9"),
        ("sport", "column 6: a port is missing"),
        (
            "src 10.0.0.1/8",
            "column 5: '10.0.0.1/8' has bits set beyond its length: write 10.0.0.0/8",
        ),
        (
            "src 10.0.0.0/33",
            "column 5: '10.0.0.0/33' is not a valid address or prefix: use one such as 10.0.0.0/8 or 2001:db8::/32",
        ),
        ("(dport 1", "column 9: ')' is missing"),
        ("dport 1)", "column 8: this parenthesis closes nothing"),
        (
            "dport 1 sport 2",
            "column 9: 'sport' needs 'and' or 'or' before it",
        ),
        (
            "size 3",
            "column 1: 'size' is not a condition: use sport, dport, port, src, dst or addr",
        ),
    ] {
        assert_eq!(error(text), message);
    }
    assert!(error(&"(".repeat(1000)).contains("nested deeper than 32"));
    assert!(error(&"not ".repeat(1000)).contains("nested deeper than 32"));
    let list = (0..501).map(|port| port.to_string()).collect::<Vec<_>>();
    assert!(error(&format!("port {}", list.join(","))).contains("more than 1000 conditions"));
}

#[test]
fn the_largest_filter_fits_its_jumps() {
    let prefixes = (0..500)
        .map(|number| format!("2001:db8:{number:x}::/48"))
        .collect::<Vec<_>>();
    let filter: Filter = format!("not (not addr {})", prefixes.join(","))
        .parse()
        .unwrap();
    assert_eq!(audit(filter.bytecode()), Ok(()));
}
