use super::*;

use proptest::prelude::*;

fn looked(connections: Vec<Connection>) -> Look {
    Look {
        connections,
        took: Duration::ZERO,
    }
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        model.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
    }
}

prop_compose! {
    fn connection()(
        key in any::<(u64, u64)>(),
        rtt_us in any::<Option<u32>>(),
        min_rtt_us in any::<Option<u32>>(),
        cwnd in any::<Option<u32>>(),
        delivery_rate in any::<Option<u64>>(),
        acked in any::<Option<u64>>(),
        retrans in any::<Option<u32>>(),
        retrans_per_s in prop::option::of(0.0..1e6),
    ) -> Connection {
        Connection { key, rtt_us, min_rtt_us, cwnd, delivery_rate, acked, retrans, retrans_per_s, ..Connection::default() }
    }
}

/// The value that a key sorts by, as the kernel gave it.
fn value(key: char, connection: &Connection) -> Option<f64> {
    match key {
        's' => connection.retrans_per_s,
        'x' => connection.retrans.map(Into::into),
        't' => connection.rtt_us.map(Into::into),
        'm' => connection.min_rtt_us.map(Into::into),
        'w' => connection.cwnd.map(Into::into),
        'd' => connection.delivery_rate.map(|rate| rate as f64),
        _ => connection.acked.map(|bytes| bytes as f64),
    }
}

proptest! {
    #[test]
    fn a_key_sorts_by_its_value_and_the_second_time_the_other_way(
        connections in prop::collection::vec(connection(), 0..30),
        key in prop::sample::select(vec!['s', 'x', 't', 'm', 'w', 'd', 'a']),
    ) {
        let mut model = Model::new(Column::Peer, Duration::from_secs(1), String::new());
        model.see(looked(connections.clone()));
        press(&mut model, &key.to_string());
        for descending in [true, false] {
            let values: Vec<_> = model.connections().iter().map(|connection| value(key, connection)).collect();
            prop_assert_eq!(values.len(), connections.len());
            // Connections without a value come last either way.
            let known: Vec<_> = values.iter().map_while(|value| *value).collect();
            prop_assert!(values[known.len()..].iter().all(Option::is_none));
            let in_order = |pair: &[f64]| if descending { pair[0] >= pair[1] } else { pair[0] <= pair[1] };
            prop_assert!(known.windows(2).all(in_order), "{:?}", known);
            press(&mut model, &key.to_string());
        }
        // A new look is sorted as the one before.
        press(&mut model, "r");
        let before = model.connections().to_vec();
        model.see(looked(connections));
        prop_assert_eq!(model.connections(), before);
    }
}

#[test]
fn a_group_has_sums_and_medians() {
    let peer = |last, rtt, retrans| Connection {
        key: (1, u64::from(last)),
        peer: Some(std::net::SocketAddr::from(([192, 0, 2, last], 443))),
        rtt_us: Some(rtt),
        retrans: Some(retrans),
        ..Connection::default()
    };
    let mut model = Model::new(Column::Retrans, Duration::from_secs(1), String::new());
    model.see(looked(vec![
        peer(1, 10_000, 1),
        peer(2, 30_000, 2),
        peer(3, 20_000, 4),
    ]));
    press(&mut model, "g");
    let lines = model.lines(0, 9);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].cells[..3], ["192.0.2.0/24", "3", "20.0ms"]);
    let column = model.columns().iter().position(|&c| c == Column::Retrans);
    assert_eq!(lines[0].cells[column.unwrap()], "7");
}

#[test]
fn nothing_at_all_is_shown_as_such() {
    let mut model = Model::new(Column::Rtt, Duration::from_secs(1), String::new());
    model.see(looked(Vec::new()));
    let expected = "0 connections, median RTT -, 0 retransmissions/s, ";
    assert!(model.summary().starts_with(expected), "{}", model.summary());
}
