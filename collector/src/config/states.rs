//! Sets of TCP states, as the command line names them.

use crate::sample::proto::TcpState;

/// A set of states: bit N is state N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(pub u32);

const WITHOUT_TCP_INFO: [TcpState; 3] = [
    TcpState::TimeWait,
    TcpState::NewSynRecv,
    TcpState::BoundInactive,
];

impl States {
    /// Every state that the kernel can dump.
    pub fn all() -> Self {
        Self(known_states().map(|state| 1 << state as i32).sum())
    }

    /// Every state in which a socket has a tcp_info with a history.
    pub fn default_set() -> Self {
        Self(
            Self::all().0
                & !WITHOUT_TCP_INFO
                    .iter()
                    .map(|&state| 1 << state as i32)
                    .sum::<u32>(),
        )
    }
}

fn known_states() -> impl Iterator<Item = TcpState> {
    (1..32).filter_map(|number| TcpState::try_from(number).ok())
}

/// A state's name on the command line.
fn option_name(state: TcpState) -> String {
    state
        .as_str_name()
        .trim_start_matches("TCP_STATE_")
        .to_ascii_lowercase()
        .replace('_', "-")
}

/// A list of states, `default` or `all`.
pub(crate) fn parse_states(text: &str) -> Result<States, String> {
    let mut set = 0;
    for word in text.split(',') {
        set |= match word {
            "default" => States::default_set().0,
            "all" => States::all().0,
            _ => match known_states().find(|&state| option_name(state) == word) {
                Some(state) => 1 << state as i32,
                None => {
                    let names: Vec<_> = known_states().map(option_name).collect();
                    return Err(format!(
                        "'{word}' is not a state: use default, all, {}",
                        names.join(", ")
                    ));
                }
            },
        };
    }
    Ok(States(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_states_are_those_with_a_tcp_info() {
        assert_eq!(parse_states("default").unwrap().0, 0b1111_1011_1110);
        assert_eq!(parse_states("all").unwrap().0, 0b11_1111_1111_1110);
        assert_eq!(parse_states("established,time-wait").unwrap().0, 0b100_0010);
        assert!(parse_states("estab").unwrap_err().contains("established"));
        assert!(parse_states("").is_err());
    }
}
