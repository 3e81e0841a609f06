//! Names of spool files.

/// The name of a file that is being written.
pub(crate) fn open_name(host: &str, unix_us: i64, pid: u32, number: u64) -> String {
    format!("{host}-{unix_us}-{pid}-{number}.spool.open")
}

/// The host in the name of a file that is (or was) being written; None for other names.
pub(crate) fn host_of_open(name: &str) -> Option<&str> {
    let mut rest = name.strip_suffix(".spool.open")?;
    for _ in 0..3 {
        let (front, number) = rest.rsplit_once('-')?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        rest = front;
    }
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_its_host_back() {
        for host in ["ams-1", "ams", "ams-1-2-3", "h.example"] {
            assert_eq!(
                host_of_open(&open_name(host, 1_700_000_000_000_000, 12, 3)),
                Some(host)
            );
        }
    }

    #[test]
    fn other_names_have_no_host() {
        for name in [
            "ams-1.state",
            "ams-1-1-2-3.spool",
            "-1-2-3.spool.open",
            "1-2-3.spool.open",
            "a-1--3.spool.open",
            "",
        ] {
            assert_eq!(host_of_open(name), None, "{name}");
        }
    }
}
