//! Objects that are fetched, and their names: /probe/10000 has 10,000 bytes. Any web server may
//! have the same three files.

/// Sizes of the Riptide paper's probes (section IV), a KB being 1000 bytes as in the lab's.
pub(super) const SIZES: [usize; 3] = [10_000, 50_000, 100_000];
/// A line of an answer's head: the window that the answer's connection started with, segments.
pub(super) const WINDOW: &str = "Springtide-Window";

/// Request of a probe.
pub(super) fn request(size: usize, host: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "GET /probe/{size} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: springtide-edge/{version}\r\nConnection: close\r\n\r\n"
    )
}

/// The size that a request's head asks for.
pub(super) fn requested(head: &[u8]) -> Option<usize> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let rest = line.strip_prefix(b"GET /probe/")?;
    let digits = rest
        .strip_suffix(b" HTTP/1.1")
        .or_else(|| rest.strip_suffix(b" HTTP/1.0"))?;
    SIZES
        .into_iter()
        .find(|size| size.to_string().as_bytes() == digits)
}

/// Where the head ends, its empty line included.
pub(super) fn end_of_head(text: &[u8]) -> Option<usize> {
    let found = text.windows(4).position(|four| four == b"\r\n\r\n");
    found.map(|at| at + 4)
}

/// Promise of an answer's head.
#[derive(Debug, PartialEq)]
pub(super) struct Promise {
    pub(super) window: Option<u32>,
}

/// None unless the head (all of it, and nothing else) promises just `size` bytes: anything else, as a redirection, is
/// not an answer to a probe.
pub(super) fn promise(head: &[u8], size: usize) -> Option<Promise> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut status = lines.next()?.splitn(3, ' ');
    if !matches!(status.next()?, "HTTP/1.1" | "HTTP/1.0") || status.next()? != "200" {
        return None;
    }
    let (mut length, mut window) = (None, None);
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if name == "content-length" {
            // Twice is how answers are smuggled.
            if length.replace(value).is_some() {
                return None;
            }
        } else if name == "transfer-encoding" || name == "content-encoding" {
            return None;
        } else if name.eq_ignore_ascii_case(WINDOW) {
            window = value.parse().ok().filter(|segments| *segments <= 65_535);
        }
    }
    (length? == size.to_string()).then_some(Promise { window })
}

#[cfg(test)]
mod tests {
    use super::{Promise, promise, request, requested};

    #[test]
    fn only_the_three_objects_can_be_asked_for() {
        for size in [10_000, 50_000, 100_000] {
            assert_eq!(
                requested(request(size, "192.0.2.1:80").as_bytes()),
                Some(size)
            );
        }
        for wrong in [
            "GET /probe/10001 HTTP/1.1\r\n\r\n",
            "GET /probe/010000 HTTP/1.1\r\n\r\n",
            "GET /probe/100000000 HTTP/1.1\r\n\r\n",
            "GET /probe/-1 HTTP/1.1\r\n\r\n",
            "GET /probe/10000 HTTP/2\r\n\r\n",
            "GET /probe/10000\r\n\r\n",
            "GET  /probe/10000 HTTP/1.1\r\n\r\n",
            "GET /probe/../etc/passwd HTTP/1.1\r\n\r\n",
            "POST /probe/10000 HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
            "",
        ] {
            assert_eq!(requested(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn an_answer_promises_just_what_was_asked_for() {
        let given = |more: &str| {
            let head = format!("HTTP/1.1 200 OK\r\nServer: any\r\n{more}\r\n\r\n");
            promise(head.as_bytes(), 10_000)
        };
        let without = Some(Promise { window: None });
        assert_eq!(given("content-length:10000"), without);
        assert_eq!(
            given("Content-Length: 10000\r\nspringtide-window: 40"),
            Some(Promise { window: Some(40) })
        );
        for window in ["many", "-1", "65536", "99999999999999999999", ""] {
            let found = given(&format!(
                "Content-Length: 10000\r\nSpringtide-Window: {window}"
            ));
            assert_eq!(found, without, "{window}");
        }
        for wrong in [
            "Content-Length: 10001",
            "Content-Length: +10000",
            "Content-Length: 10000\r\nContent-Length: 10000",
            "Content-Length: 10000\r\nTransfer-Encoding: chunked",
            "Content-Length: 10000\r\nContent-Encoding: gzip",
            "Content-Length: 10000\r\nno colon",
            "X: y",
        ] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
        for status in [
            "HTTP/1.1 302 Found",
            "HTTP/1.1 2000 OK",
            "HTTP/2 200",
            "SSH-2.0-x",
            "",
        ] {
            let head = format!("{status}\r\nContent-Length: 10000\r\nLocation: /\r\n\r\n");
            assert_eq!(promise(head.as_bytes(), 10_000), None, "{status}");
        }
        assert_eq!(
            promise(
                b"HTTP/1.1 200 \xff\r\nContent-Length: 10000\r\n\r\n",
                10_000
            ),
            None
        );
    }
}
