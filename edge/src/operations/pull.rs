//! Bundles that the edge fetches by itself from an origin: a web server, or an object store behind one.
//!
//! An origin is not trusted: whoever controls it can keep bundles back, and send bytes that nobody wants. Each bundle is
//! signed, and `apply` refuses another edge's, an altered and an older one. One that has expired, and is younger than what
//! is applied, ends that: it came to replace it.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use ureq::Agent;
use ureq::http::{HeaderValue, StatusCode, Uri, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::apply::{Applied, apply};
use super::given::{Given, Source};
use super::report::Report;
use super::run::{Places, read_clock};
use super::verify::read;
use super::withdraw::{EXPIRED, TakenBack, withdraw};
use crate::bundle::{Bundle, MAX_BYTES};
use crate::error::{Error, Result, code};
use crate::instant;
use crate::signature::MAX_SIGNATURE_BYTES;
use crate::state::{State, Store};
use crate::text::{one_line, reason};

/// Default of `pull --interval`, seconds.
pub const PULL_INTERVAL_S: u64 = 5;
/// Longest pause after looks that failed, so that edges are back before the next wave is judged.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time for a look, whatever the origin does.
const LOOK_LIMIT: Duration = Duration::from_secs(15);
/// The end of an armored signature (PROTOCOL.sshsig). The bundle follows it.
const END_OF_SIGNATURE: &[u8] = b"-----END SSH SIGNATURE-----\n";
/// Name of the run directory's file whose time is that of the origin's last answer.
const ANSWERED: &str = "origin-answered";

/// An origin, and what it offered last.
pub struct Origin {
    agent: Agent,
    url: String,
    offered: Option<Offered>,
}

/// A bundle with its signature, as an origin offers it.
struct Offered {
    content: Vec<u8>,
    tag: Option<HeaderValue>,
    /// Whether it has been applied, or was found to be known.
    taken: bool,
}

/// Result of one look at the origin.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Pulled {
    /// A bundle was applied, or held already.
    Applied(Box<Applied>),
    /// A younger bundle that has expired ended the applied one.
    TakenBack(TakenBack),
    /// Nothing was done, and why.
    Unchanged {
        #[doc(hidden)]
        command: &'static str,
        #[doc(hidden)]
        changed: bool,
        #[doc(hidden)]
        reason: &'static str,
    },
}

impl Pulled {
    const fn unchanged(reason: &'static str) -> Self {
        let (command, changed) = ("pull", false);
        Self::Unchanged {
            command,
            changed,
            reason,
        }
    }

    /// Whether there is something to tell.
    pub const fn is_new(&self) -> bool {
        !matches!(self, Self::Unchanged { .. })
    }
}

impl Report for Pulled {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Applied(report) => report.exit_code(),
            Self::TakenBack(report) => report.exit_code(),
            Self::Unchanged { .. } => code::DONE,
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Applied(report) => report.lines(),
            Self::TakenBack(report) => report.lines(),
            Self::Unchanged { reason, .. } => vec![format!("unchanged: {reason}")],
        }
    }
}

impl Origin {
    /// The origin at `url`, which has an object EDGE.bundle for each edge. `ca`: certificates (PEM) to trust instead of
    /// the public ones.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] where the address or the file cannot be used.
    pub fn new(url: &str, edge: &str, ca: Option<&Path>) -> Result<Self> {
        let fits = |uri: &Uri| {
            let host = uri.authority();
            let is_plain = host.is_some_and(|host| !host.as_str().contains('@'));
            matches!(uri.scheme_str(), Some("http" | "https")) && is_plain && uri.query().is_none()
        };
        if !url.parse().is_ok_and(|uri| fits(&uri)) {
            let shown = one_line(url);
            let message = format!(
                "origin: '{shown}' is not an address; write http://HOST/PATH or https://HOST/PATH"
            );
            return Err(Error::refused(message));
        }
        let mut tls = TlsConfig::builder();
        if let Some(path) = ca {
            tls = tls.root_certs(certificates(path)?);
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(LOOK_LIMIT))
            .user_agent(concat!("springtide-edge/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            agent: config.new_agent(),
            url: format!("{}/{edge}.bundle", url.trim_end_matches('/')),
            offered: None,
        })
    }

    /// Applies what is offered, if it is new. What could not be applied is tried again.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] where the origin does not answer as it should; those of `apply`.
    pub fn look(
        &mut self,
        allowed_signers: Option<&Path>,
        edge: &str,
        places: &Places,
    ) -> Result<Pulled> {
        self.fetch()?;
        keep_time(&places.run);
        let Some(offered) = &mut self.offered else {
            return Ok(Pulled::unchanged("the origin offers nothing to this edge"));
        };
        if offered.taken {
            return Ok(Pulled::unchanged("the origin offers what it did"));
        }
        let (signature, content) = split(&offered.content);
        let source = Source {
            bundle: Given::Bytes {
                from: &self.url,
                content,
                signature,
            },
            allowed_signers,
            edge,
            heeds_withdrawals: true,
        };
        let done = match apply(&source, places) {
            Ok(applied) => Pulled::Applied(Box::new(applied)),
            // Somebody withdrew everything since the bundle was made: it stays so until the next one.
            Err(Error::Withdrawn(_)) => Pulled::unchanged("withdrawn here after it was made"),
            Err(error) if error.exit_code() == code::EXPIRED => {
                let Some(ended) = end_of_replacement(&source, places)? else {
                    return Err(error);
                };
                let why = format!("{EXPIRED} {}, in its place", instant::show(ended));
                Pulled::TakenBack(withdraw(places, &why, false)?)
            }
            Err(error) => return Err(error),
        };
        offered.taken = true;
        Ok(done)
    }

    /// Brings `offered` up to date.
    fn fetch(&mut self) -> Result<()> {
        let url = &self.url;
        let failed = |what: &str| {
            let fix = "it is tried again; the origin's own log may say more";
            Error::failed(format!("{url}: {}; {fix}", one_line(what)))
        };
        let mut request = self.agent.get(url);
        let known = self.offered.as_ref();
        if let Some(tag) = known.and_then(|offered| offered.tag.as_ref()) {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut answer = request.call().map_err(|error| failed(&error.to_string()))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(()),
            StatusCode::NOT_FOUND => {
                self.offered = None;
                return Ok(());
            }
            other => return Err(failed(&format!("answers {other}"))),
        }
        let limit = (MAX_BYTES + MAX_SIGNATURE_BYTES) as u64;
        let body = answer.body_mut().with_config().limit(limit);
        let content = body
            .read_to_vec()
            .map_err(|error| failed(&error.to_string()))?;
        // Without its length, an answer that was cut on its way passes for whole: its tag must not keep the rest away.
        let is_whole = answer.headers().contains_key(header::CONTENT_LENGTH);
        let tag = answer.headers().get(header::ETAG).filter(|_| is_whole);
        let tag = tag.cloned();
        match &mut self.offered {
            // A server without tags sends the same again.
            Some(known) if known.content == content => known.tag = tag,
            _ => {
                let taken = false;
                self.offered = Some(Offered {
                    content,
                    tag,
                    taken,
                });
            }
        }
        Ok(())
    }
}

/// Looks at the origin every `interval`, at random a half of it earlier or later, so that a fleet does not come at once;
/// never returns. After a failure it waits twice as long each time, up to [`LONGEST_PAUSE`].
///
/// `report` gets what was applied, `complain` each failure once.
pub fn pull(
    interval: Duration,
    look: &mut dyn FnMut() -> Result<Pulled>,
    report: &mut dyn FnMut(&Pulled),
    complain: &mut dyn FnMut(&str),
) -> ! {
    let mut last = String::new();
    let mut pause = interval;
    loop {
        match look() {
            Ok(found) => {
                if found.is_new() {
                    report(&found);
                }
                last.clear();
                pause = interval;
            }
            Err(error) => {
                let wrong = one_line(&error.to_string());
                // The time since something changes, and nothing else.
                let kind = wrong.replace(|letter: char| letter.is_ascii_digit(), "");
                if kind != last {
                    complain(&format!("pull: {wrong}"));
                }
                last = kind;
                pause = (2 * pause).min(LONGEST_PAUSE.max(interval));
            }
        }
        sleep(pause.mul_f64(0.5 + share()));
    }
}

/// A random number from 0 to 1.
fn share() -> f64 {
    let mut bytes = [0; 4];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// The armored signature, empty where there is none, and the bundle behind it.
fn split(content: &[u8]) -> (&[u8], &[u8]) {
    let head = &content[..content.len().min(MAX_SIGNATURE_BYTES)];
    let end = END_OF_SIGNATURE.len();
    let found = head.windows(end).position(|part| part == END_OF_SIGNATURE);
    content.split_at(found.map_or(0, |at| at + end))
}

/// When a bundle expired that is signed for this edge, and younger than the one that is applied; None for any other.
fn end_of_replacement(source: &Source<'_>, places: &Places) -> Result<Option<i64>> {
    let mut clock = read_clock()?;
    let Given::Bytes { content, .. } = source.bundle else {
        return Ok(None);
    };
    // Judged as of when it was made, since it is over now.
    if let Ok(bundle) = Bundle::parse(content) {
        clock.wall = bundle.created_at as f64;
    }
    let (bundle, _) = read(source, &clock)?;
    let state = Store::new(&places.state, &places.run).state()?;
    let replaces = state.is_some_and(|State { claim, .. }| {
        let applied = (claim.round, claim.created_at);
        claim.withdrawn.is_none() && applied < (bundle.round, bundle.created_at)
    });
    Ok(replaces.then_some(bundle.expires_at))
}

fn certificates(path: &Path) -> Result<RootCerts> {
    let shown = path.display();
    let pem = fs::read(path).map_err(|error| {
        let fix = "name a file of certificates (PEM) that this user can read";
        Error::refused(format!("{shown}: {}; {fix}", reason(&error)))
    })?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let message = format!("{shown}: there is no certificate in it; name a file of PEM");
        return Err(Error::refused(message));
    }
    Ok(RootCerts::from(found))
}

/// Keeps the time of an answer, for the metrics. A disk that takes none keeps nothing from being applied.
fn keep_time(run: &Path) {
    let _ = DirBuilder::new().mode(0o700).recursive(true).create(run);
    let _ = File::create(run.join(ANSWERED)).and_then(|file| file.set_modified(SystemTime::now()));
}

/// When the origin answered last, where bundles are pulled.
pub(super) fn answered(run: &Path) -> Option<SystemTime> {
    fs::metadata(run.join(ANSWERED)).ok()?.modified().ok()
}
