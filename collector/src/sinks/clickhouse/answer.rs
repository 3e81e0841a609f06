//! Meaning of a server's answer for the rows that were sent.

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The rows are there.
    Taken,
    /// The server may take them soon.
    Later,
    /// It takes fewer at a time.
    Fewer,
    /// Somebody has to do something about it.
    Refused,
}

/// Exceptions that pass by themselves, by their code in ClickHouse's ErrorCodes.cpp.
const PASSING: [u32; 18] = [
    159, // TIMEOUT_EXCEEDED
    201, // QUOTA_EXCEEDED
    202, // TOO_MANY_SIMULTANEOUS_QUERIES
    203, // NO_FREE_CONNECTION
    209, // SOCKET_TIMEOUT
    210, // NETWORK_ERROR
    225, // NO_ZOOKEEPER
    242, // TABLE_IS_READ_ONLY
    243, // NOT_ENOUGH_SPACE
    252, // TOO_MANY_PARTS
    285, // TOO_FEW_LIVE_REPLICAS
    286, // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    319, // UNKNOWN_STATUS_OF_INSERT
    394, // QUERY_WAS_CANCELLED
    425, // SYSTEM_ERROR
    439, // CANNOT_SCHEDULE_TASK
    722, // ASYNC_LOAD_WAIT_FAILED
    999, // KEEPER_EXCEPTION
];
const MEMORY_LIMIT_EXCEEDED: u32 = 241;

/// Judges an answer by its status and by the exception's code, which a server may also send after it began with 200.
pub(super) fn verdict(status: u16, exception: Option<u32>) -> Verdict {
    match (status, exception) {
        (413, _) | (_, Some(MEMORY_LIMIT_EXCEEDED)) => Verdict::Fewer,
        (_, Some(code)) if PASSING.contains(&code) => Verdict::Later,
        (_, Some(_)) => Verdict::Refused,
        (200..300, None) => Verdict::Taken,
        (408 | 425 | 429 | 500.., None) => Verdict::Later,
        (_, None) => Verdict::Refused,
    }
}

/// The exception's code in a header, or at the beginning of a line of the body.
pub(super) fn exception(header: Option<&str>, body: &str) -> Option<u32> {
    let in_header = header.and_then(|text| text.trim().parse().ok());
    let in_line = |line: &str| {
        let rest = line.strip_prefix("Code: ")?;
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    };
    // Zero is not an exception.
    in_header
        .or_else(|| body.lines().find_map(in_line))
        .filter(|&code| code != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_found_wherever_the_server_puts_it() {
        assert_eq!(exception(Some("242"), ""), Some(242));
        assert_eq!(
            exception(None, "Code: 60. DB::Exception: Table x does not exist."),
            Some(60)
        );
        assert_eq!(
            exception(None, "0\n1\nCode: 241. DB::Exception: ..."),
            Some(241)
        );
        assert_eq!(exception(None, ""), None);
        assert_eq!(exception(Some("nonsense"), "Ok."), None);
    }

    #[test]
    fn temporary_failures_are_retried_and_permanent_ones_reported() {
        for (status, code, expected) in [
            (200, None, Verdict::Taken),
            (200, Some(252), Verdict::Later),
            (500, Some(242), Verdict::Later),
            (503, None, Verdict::Later),
            (429, None, Verdict::Later),
            (500, Some(60), Verdict::Refused),
            (403, Some(516), Verdict::Refused),
            (404, None, Verdict::Refused),
            (307, None, Verdict::Refused),
            (413, None, Verdict::Fewer),
            (500, Some(241), Verdict::Fewer),
        ] {
            assert_eq!(verdict(status, code), expected, "{status} {code:?}");
        }
    }
}
