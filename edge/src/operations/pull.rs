//! Bundles that the edge fetches by itself from an origin: a web server, or an object store behind one.
//!
//! An origin is not trusted: whoever controls it can keep bundles back, and do nothing else. Each bundle is signed, and
//! `apply` refuses another edge's, an altered, an older and an expired one.

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
use super::report::Report;
use super::run::{Given, Places, Source, read_clock};
use super::verify::read;
use crate::bundle::MAX_BYTES;
use crate::error::{Error, Result};
use crate::signature::MAX_SIGNATURE_BYTES;
use crate::state::Store;
use crate::text::{one_line, reason};

/// Default of `pull --interval`, seconds.
pub const PULL_INTERVAL_S: u64 = 5;
/// Longest pause after looks that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time for a look, whatever the origin does.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// The end of an armored signature (PROTOCOL.sshsig). The bundle follows it.
const END_OF_SIGNATURE: &[u8] = b"-----END SSH SIGNATURE-----\n";
/// Name of the run directory's file whose time is that of the origin's last answer.
const ANSWERED: &str = "origin-answered";

/// An origin, and what it offered last.
pub struct Origin {
    agent: Agent,
    url: String,
    tag: Option<HeaderValue>,
    offered: Option<Offered>,
}

/// A bundle with its signature, as an origin offers it.
struct Offered {
    content: Vec<u8>,
    /// Whether it has been applied, or was found to be known.
    taken: bool,
}

/// Result of one look at the origin.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Pulled {
    /// A bundle was applied, or held already.
    Applied(Box<Applied>),
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
        matches!(self, Self::Applied(_))
    }
}

impl Report for Pulled {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Applied(report) => report.exit_code(),
            Self::Unchanged { .. } => 0,
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Applied(report) => report.lines(),
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
            tag: None,
            offered: None,
        })
    }

    /// Applies what is offered, if it is new. What could not be applied is tried again, and not fetched again.
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
        };
        let done = if is_withdrawn(&source, places)? {
            Ok(Pulled::unchanged("what is offered was withdrawn here"))
        } else {
            apply(&source, places).map(|applied| Pulled::Applied(Box::new(applied)))
        };
        // Somebody withdrew everything meanwhile: it stays so until another bundle is offered.
        offered.taken = matches!(done, Ok(_) | Err(Error::Withdrawn(_)));
        done
    }

    /// Brings `offered` up to date.
    fn fetch(&mut self) -> Result<()> {
        let url = &self.url;
        let failed = |what: &str| {
            let fix = "it is tried again; the origin's own log may say more";
            Error::failed(format!("{url}: {}; {fix}", one_line(what)))
        };
        let mut request = self.agent.get(url);
        if let Some(tag) = &self.tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut answer = request.call().map_err(|error| failed(&error.to_string()))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if self.offered.is_some() => return Ok(()),
            StatusCode::NOT_FOUND => {
                (self.tag, self.offered) = (None, None);
                return Ok(());
            }
            other => return Err(failed(&format!("answers {other}"))),
        }
        let limit = (MAX_BYTES + MAX_SIGNATURE_BYTES) as u64;
        let body = answer.body_mut().with_config().limit(limit);
        let content = body
            .read_to_vec()
            .map_err(|error| failed(&error.to_string()))?;
        self.tag = answer.headers().get(header::ETAG).cloned();
        // A server without tags sends the same again.
        if self
            .offered
            .as_ref()
            .is_none_or(|old| old.content != content)
        {
            let taken = false;
            self.offered = Some(Offered { content, taken });
        }
        Ok(())
    }
}

/// Looks at the origin every `interval`, at random a half of it earlier or later, so that a fleet does not come at once;
/// never returns a value. After a failure it waits twice as long each time, a minute at most.
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
                if wrong != last {
                    complain(&format!("pull: {wrong}"));
                }
                last = wrong;
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

/// Whether this bundle was applied here and then withdrawn: it stays so until another one is offered.
fn is_withdrawn(source: &Source<'_>, places: &Places) -> Result<bool> {
    let (bundle, _) = read(source, &read_clock()?)?;
    let store = Store::new(&places.state, &places.run);
    let state = store.state().ok().flatten();
    Ok(state.is_some_and(|state| {
        let claim = &state.claim;
        let withdrawn = claim.withdrawn.is_some() || store.later_withdrawal(claim).is_some();
        claim.bundle_digest == bundle.digest && withdrawn
    }))
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
