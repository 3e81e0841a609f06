//! The filter's two readings: the kernel's, of its bytecode, and our own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use crate::kernel::dump::{
    BUFFER, DumpError, DumpSocket, Extensions, Method, Progress, Request, Taker,
};
use crate::kernel::filter::Filter;
use crate::kernel::inet_diag::SocketView;
use crate::stats::Stats;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::sockopt::socket_cookie;

/// Every state of a socket that has a tcp_info.
const STATES: u32 = 0xfbe;

/// Cookies of a dump, and whether a filter evaluated here matches each.
struct Gathered<'a> {
    filter: Option<&'a Filter>,
    cookies: BTreeMap<u64, bool>,
}

impl Taker for Gathered<'_> {
    type Error = ();

    fn expect(&mut self, _: u64) {}

    fn take(&mut self, view: &SocketView<'_>, _: &mut Stats) -> Result<(), ()> {
        let matches = self.filter.is_none_or(|filter| filter.matches(view));
        self.cookies.insert(view.cookie(), matches);
        Ok(())
    }
}

fn dump(method: Method, bytecode: &[u8], filter: Option<&Filter>) -> BTreeMap<u64, bool> {
    let mut socket = DumpSocket::open().unwrap();
    let mut buffer = Box::new([0; BUFFER]);
    let mut gathered = Gathered {
        filter,
        cookies: BTreeMap::new(),
    };
    for &family in method.walks() {
        let request = Request {
            states: STATES,
            attributes: Extensions::MINIMAL,
            bytecode,
            storage: None,
        };
        socket.send::<()>(family, &request).unwrap();
        loop {
            let received = socket.receive(&mut buffer, &mut Stats::default(), &mut gathered);
            match received {
                Ok(Progress::More) => {}
                Ok(_) => break,
                Err(DumpError::Consumer(())) => unreachable!(),
                Err(error) => panic!("{}", error.is_unknown_request()),
            }
        }
    }
    gathered.cookies
}

/// Listeners and connections at many addresses, and what their filters may contain.
struct World {
    _listeners: Vec<TcpListener>,
    _connections: Vec<(TcpStream, TcpStream)>,
    cookies: BTreeSet<u64>,
    ports: Vec<u16>,
}

fn world() -> World {
    let (mut listeners, mut connections, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for (listen, connect) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("127.1.2.3:0", "127.1.2.3"),
        ("127.200.0.1:0", "127.200.0.1"),
        ("[::1]:0", "::1"),
        // IPv6 sockets with mapped addresses, for connections that are IPv4 at their other end.
        ("[::]:0", "127.9.9.9"),
    ] {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        for _ in 0..4 {
            let client = TcpStream::connect((connect, port)).unwrap();
            let (server, peer) = listener.accept().unwrap();
            ports.extend([port, peer.port()]);
            connections.push((client, server));
        }
        listeners.push(listener);
    }
    let cookie = |socket: &dyn Fn() -> u64| socket();
    let mut cookies = BTreeSet::new();
    for listener in &listeners {
        cookies.insert(cookie(&|| socket_cookie(listener.as_fd()).unwrap()));
    }
    for (client, server) in &connections {
        cookies.insert(socket_cookie(client.as_fd()).unwrap());
        cookies.insert(socket_cookie(server.as_fd()).unwrap());
    }
    World {
        _listeners: listeners,
        _connections: connections,
        cookies,
        ports,
    }
}

fn expressions(ports: Vec<u16>) -> impl Strategy<Value = String> {
    let port = prop_oneof![prop::sample::select(ports), any::<u16>()];
    let prefixes = [
        "127.0.0.0/8",
        "127.0.0.1",
        "127.1.0.0/16",
        "127.128.0.0/9",
        "0.0.0.0/0",
        "10.0.0.0/8",
        "::/0",
        "::1",
        "::ffff:0:0/96",
        "::ffff:127.0.0.0/104",
        "fe80::/10",
    ];
    let leaf = prop_oneof![
        (
            prop::sample::select(vec!["sport", "dport", "port"]),
            port.clone(),
            port
        )
            .prop_map(|(what, a, b)| format!("{what} {}-{},{b}", a.min(b), a.max(b))),
        (
            prop::sample::select(vec!["src", "dst", "addr"]),
            prop::sample::select(prefixes.to_vec())
        )
            .prop_map(|(what, prefix)| format!("{what} {prefix}")),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" and "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" or "))),
            inner.prop_map(|inner| format!("not {inner}")),
        ]
    })
}

#[test]
fn the_kernel_leaves_out_just_what_the_filter_leaves_out() {
    let world = world();
    let ours = |cookies: BTreeMap<u64, bool>| -> BTreeSet<u64> {
        let matching = cookies.into_iter().filter(|&(_, matches)| matches);
        matching
            .map(|(cookie, _)| cookie)
            .filter(|cookie| world.cookies.contains(cookie))
            .collect()
    };
    assert_eq!(ours(dump(Method::OneWalk, &[], None)), world.cookies);
    let (mut none, mut some) = (0, 0);
    let mut runner = TestRunner::new(Config::with_cases(200));
    let result = runner.run(&expressions(world.ports.clone()), |text| {
        let filter: Filter = text.parse().unwrap();
        let expected = ours(dump(Method::OneWalk, &[], Some(&filter)));
        for method in [Method::OneWalk, Method::WalkPerFamily] {
            let kernel = ours(dump(method, filter.bytecode(), None));
            prop_assert_eq!(&kernel, &expected, "{} {:?}", text, method);
        }
        Ok(())
    });
    result.unwrap();
    for text in ["sport 0-65535", "not sport 0-65535", "src 127.1.2.3"] {
        let filter: Filter = text.parse().unwrap();
        match ours(dump(Method::OneWalk, filter.bytecode(), None)).len() {
            0 => none += 1,
            _ => some += 1,
        }
    }
    assert_eq!((none, some), (1, 2));
}
