//! A small HTTP server for whoever watches: a few connections at once, each with one short GET that is answered at once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest request, bytes: a browser's is below 2 KiB.
const REQUEST_LIMIT: usize = 8 * 1024;

/// A client has this long for its request and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections at once; who comes while all are taken is sent away.
const CONNECTIONS: usize = 16;

/// A thread keeps little on its stack, bytes.
const STACK: usize = 128 * 1024;

/// Answer to one path.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.to_owned() + "\n",
        }
    }
}

/// Listens on `address` and answers with what `answer` returns for a path, None where there is nothing, from threads of its
/// own, until the process ends. Returns the address with the port that was taken.
pub(crate) fn serve(
    address: SocketAddr,
    answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let answer = Arc::new(answer);
    let taken = Arc::new(AtomicUsize::new(0));
    spawn("http", move || {
        loop {
            match listener.accept() {
                Ok((client, _)) => meet(client, &answer, &taken),
                // Out of descriptors or memory: they come back when connections end.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK);
    builder.spawn(work).map(drop)
}

/// Answers the client in a thread, if there is one for it.
fn meet<A>(mut client: TcpStream, answer: &Arc<A>, taken: &Arc<AtomicUsize>)
where
    A: Fn(&str) -> Option<Answer> + Send + Sync + 'static,
{
    if taken.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
        taken.fetch_sub(1, Ordering::Relaxed);
        // Its request is not read: it may see a reset instead of the answer.
        let _ = client.set_nonblocking(true);
        let _ = client.write_all(&response(&Answer::text(503, "too many connections"), true));
        return;
    }
    let (answer, counter) = (answer.clone(), taken.clone());
    let spawned = spawn("http-client", move || {
        // A client that breaks off has lost interest: that is not worth a message.
        let _ = converse(&mut client, &*answer);
        counter.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        taken.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(client: &mut TcpStream, answer: &impl Fn(&str) -> Option<Answer>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    client.set_write_timeout(Some(PATIENCE))?;
    let request = match read_head(client, deadline) {
        Ok(request) => request,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return client.write_all(&response(
                &Answer::text(431, "the request is too long"),
                true,
            ));
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return client.write_all(&response(
                &Answer::text(408, "the request did not come in time"),
                true,
            ));
        }
        Err(error) => return Err(error),
    };
    let (answer, with_body) = answer_to(&request, answer);
    client.write_all(&response(&answer, with_body))
}

/// The request up to the empty line after its headers; an error of kind `InvalidData` when it is too long.
fn read_head(client: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if request.len() > REQUEST_LIMIT {
            return Err(ErrorKind::InvalidData.into());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => request.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

/// The answer, and whether it goes with its body.
fn answer_to(request: &[u8], answer: &impl Fn(&str) -> Option<Answer>) -> (Answer, bool) {
    let line = request
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    let words = std::str::from_utf8(line)
        .unwrap_or_default()
        .split(' ')
        .collect::<Vec<_>>();
    let &[method, target, version] = &words[..] else {
        return (Answer::text(400, "this is not an HTTP request"), true);
    };
    if !version.starts_with("HTTP/1.") {
        return (
            Answer::text(505, "only HTTP/1.0 and HTTP/1.1 are supported"),
            true,
        );
    }
    if !matches!(method, "GET" | "HEAD") {
        return (Answer::text(405, "only GET and HEAD are supported"), true);
    }
    let path = target.split('?').next().unwrap_or_default();
    let found = answer(path).unwrap_or_else(|| Answer::text(404, "there is /metrics and /healthz"));
    (found, method == "GET")
}

fn response(answer: &Answer, with_body: bool) -> Vec<u8> {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed\r\nAllow: GET, HEAD",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    };
    let Answer {
        status,
        content_type,
        body,
    } = answer;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    if with_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> SocketAddr {
        let local = "127.0.0.1:0".parse().unwrap();
        let answer = |path: &str| (path == "/x").then(|| Answer::text(200, "here"));
        serve(local, answer).unwrap()
    }

    fn response(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_are_answered() {
        let address = started();
        let whole = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\
                     Cache-Control: no-store\r\nConnection: close\r\n\r\nhere\n";
        assert_eq!(
            response(address, b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"),
            whole
        );
        assert_eq!(response(address, b"GET /x?y=1 HTTP/1.0\r\n\r\n"), whole);
        assert_eq!(
            response(address, b"HEAD /x HTTP/1.1\r\n\r\n"),
            whole.strip_suffix("here\n").unwrap()
        );
        for (request, status) in [
            (&b"GET /y HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
            (
                b"POST /x HTTP/1.1\r\n\r\n",
                "405 Method Not Allowed\r\nAllow: GET, HEAD\r\n",
            ),
            (b"GET /x HTTP/2\r\n\r\n", "505 "),
            (b"GET  /x HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"\xff\xfe\r\n\r\n", "400 "),
        ] {
            let response = response(address, request);
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status}")),
                "{response}"
            );
        }
    }

    #[test]
    fn a_request_that_never_ends_is_refused() {
        let long = [&b"GET /x HTTP/1.1\r\nA: "[..], &vec![b'a'; REQUEST_LIMIT]].concat();
        assert!(response(started(), &long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn silent_clients_do_not_keep_others_out_for_ever_nor_take_more_than_their_share() {
        let address = started();
        let silent: Vec<_> = (0..CONNECTIONS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut one_more = TcpStream::connect(address).unwrap();
        let mut text = String::new();
        one_more.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        drop(silent);
        let answered = || {
            let mut client = TcpStream::connect(address).unwrap();
            let mut text = String::new();
            let _ = client.write_all(b"GET /x HTTP/1.1\r\n\r\n");
            let _ = client.read_to_string(&mut text);
            text.starts_with("HTTP/1.1 200 ")
        };
        let begun = Instant::now();
        while !answered() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "their places never became free"
            );
        }
    }
}
