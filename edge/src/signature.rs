//! Who signed a bundle: SSH signatures over its bytes (PROTOCOL.sshsig of OpenSSH), and whose count (ALLOWED SIGNERS in
//! ssh-keygen(1)).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ssh_key::public::KeyData;
use ssh_key::{LineEnding, PublicKey, SshSig};

use crate::error::{Error, Result, code};
use crate::files::read_regular;
use crate::instant;
use crate::text::reason;

/// A signature made for anything else is not one of ours (ssh-keygen(1), -n).
pub const NAMESPACE: &str = "springtide-bundle";
/// The principal that stands before the keys in allowed_signers.
pub const SIGNER: &str = "springtide";
/// An armored signature by a 16384-bit RSA key is under 6 KB.
pub const MAX_SIGNATURE_BYTES: usize = 64 * 1024;
/// Thousands of keys.
const MAX_SIGNERS_BYTES: usize = 1024 * 1024;

/// Nothing of `content` is looked at before one of the allowed keys has signed just these bytes. `armored` gives the
/// signature; `shown` names it.
///
/// # Errors
///
/// [`Error::Refused`]: no signature, a signer that is not allowed, or other bytes than those that were signed.
pub fn verify(
    shown: &str,
    content: &[u8],
    armored: impl FnOnce() -> Result<Vec<u8>>,
    allowed_signers: &Path,
    now: i64,
) -> Result<()> {
    let signers = read_signers(allowed_signers)?;
    match check(content, &armored()?, &signers, now) {
        Verdict::Allowed => Ok(()),
        Verdict::OtherKey => {
            let problem = format!(
                "its key does not stand in {} as one of '{SIGNER}'",
                allowed_signers.display()
            );
            let message = format!("{shown}: signature: {problem}; sign with an allowed key");
            Err(Error::refused_as(code::WRONG_SIGNER, message))
        }
        Verdict::OtherContent(why) => {
            let fix = "fetch both files again: one was altered on its way";
            let message = format!("{shown}: signature: is not one of this content ({why}); {fix}");
            Err(Error::refused_as(code::ALTERED, message))
        }
    }
}

/// Reads an armored signature from its file.
///
/// # Errors
///
/// [`Error::Refused`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    match read_regular(path, MAX_SIGNATURE_BYTES) {
        Ok((_, armored)) => Ok(armored),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(&shown)),
        Err(error) => {
            let fix = "name a bundle that this user can read";
            Err(Error::refused(format!(
                "{shown}: file: {}; {fix}",
                reason(&error)
            )))
        }
    }
}

/// Refusal of a bundle without a signature.
fn missing(shown: &dyn std::fmt::Display) -> Error {
    let fix = "sign with `springtide bundle --sign-key`, push both files, or say --unsigned";
    let message = format!("{shown}: signature: is missing; {fix}");
    Error::refused_as(code::UNSIGNED, message)
}

fn read_signers(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let (metadata, signers) = read_regular(path, MAX_SIGNERS_BYTES).map_err(|error| {
        let fix =
            "put the publisher's public key there, or take the bundle unchecked with --unsigned";
        let problem = if error.kind() == std::io::ErrorKind::NotFound {
            "is missing, so that no bundle is accepted".to_owned()
        } else {
            reason(&error)
        };
        Error::refused(format!("{shown}: trusted keys: {problem}; {fix}"))
    })?;
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
        let fix = "chmod and chown it to root";
        return Err(Error::refused(format!(
            "{shown}: others than its owner root can write it; {fix}"
        )));
    }
    if signers.len() > MAX_SIGNERS_BYTES {
        let fix = "keep the publisher's keys only";
        return Err(Error::refused(format!(
            "{shown}: is over {MAX_SIGNERS_BYTES} bytes; {fix}"
        )));
    }
    Ok(signers)
}

/// Verdict on a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Signs these bytes, by an allowed key.
    Allowed,
    /// Signs these bytes, by another key.
    OtherKey,
    /// Does not sign these bytes, and why.
    OtherContent(&'static str),
}

/// Pure: `armored` is PATH.sig, `signers` allowed_signers, `now` seconds since the epoch.
pub fn check(content: &[u8], armored: &[u8], signers: &[u8], now: i64) -> Verdict {
    let Some(signature) = parse(armored) else {
        return Verdict::OtherContent("it is not an SSH signature");
    };
    if signature.namespace() != NAMESPACE {
        return Verdict::OtherContent("it was made for another purpose");
    }
    let key = PublicKey::new(signature.public_key().clone(), "");
    if !touched(&signature) || key.verify(NAMESPACE, content, &signature).is_err() {
        return Verdict::OtherContent("the key did not sign these bytes");
    }
    let text = String::from_utf8_lossy(signers);
    if text.lines().any(|line| allows(line, key.key_data(), now)) {
        Verdict::Allowed
    } else {
        Verdict::OtherKey
    }
}

/// Only what is written as it would be written again: the library bounds what it reads by the lengths inside, and does
/// not ask whether that was all or whether it was there, which OpenSSH does.
fn parse(armored: &[u8]) -> Option<SshSig> {
    let signature = SshSig::from_pem(armored).ok()?;
    let again = signature.to_pem(LineEnding::LF).ok()?;
    let words = |text: &[u8]| {
        text.split(u8::is_ascii_whitespace)
            .collect::<Vec<_>>()
            .concat()
    };
    (signature.version() == SshSig::VERSION && words(armored) == words(again.as_bytes()))
        .then_some(signature)
}

/// A key in hardware says whether somebody was there; ssh-keygen does not take a signature where nobody was
/// (PROTOCOL.u2f of OpenSSH: the last five bytes are flags and a counter).
fn touched(signature: &SshSig) -> bool {
    match signature.public_key() {
        KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) => {
            let bytes = signature.signature_bytes();
            bytes
                .len()
                .checked_sub(5)
                .is_some_and(|at| bytes[at] & 1 != 0)
        }
        _ => true,
    }
}

/// Whether a line of allowed_signers lets this key sign bundles now. What cannot be read allows nothing.
fn allows(line: &str, key: &KeyData, now: i64) -> bool {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return false;
    }
    let Some((principals, rest)) = word(line) else {
        return false;
    };
    if !matches_list(&principals, SIGNER) {
        return false;
    }
    let rest = rest.trim_start();
    // Options stand before the key's type, which is never followed by an equals sign or a comma.
    let (options, key_text) = match PublicKey::from_openssh(rest) {
        Ok(_) => (String::new(), rest),
        Err(_) => match word(rest) {
            Some((options, key_text)) => (options, key_text.trim_start()),
            None => return false,
        },
    };
    let found = PublicKey::from_openssh(key_text);
    options_allow(&options, now) && found.is_ok_and(|found| found.key_data() == key)
}

/// The first word, where quotes hold spaces together, and what follows it. The quotes stay.
fn word(text: &str) -> Option<(String, &str)> {
    let mut quoted = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => return Some((text[..at].to_owned(), &text[at..])),
            _ => {}
        }
    }
    None
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

/// Every option is understood and holds; one that is not known allows nothing.
fn options_allow(options: &str, now: i64) -> bool {
    split_quoted(options)
        .into_iter()
        .filter(|option| !option.is_empty())
        .all(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = unquoted(value);
            match name.to_ascii_lowercase().as_str() {
                "namespaces" => matches_list(value, NAMESPACE),
                "valid-after" => time(value).is_some_and(|after| now >= after),
                "valid-before" => time(value).is_some_and(|before| now <= before),
                _ => false,
            }
        })
}

/// At commas outside of quotes.
fn split_quoted(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    })
    .collect()
}

/// `YYYYMMDD[HHMM[SS]]Z` as seconds since the epoch. Without the Z it would depend on the edge's time zone: None.
fn time(text: &str) -> Option<i64> {
    let digits = text.strip_suffix(['Z', 'z'])?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let clock = match digits.len() {
        8 => "000000".to_owned(),
        12 => format!("{}00", &digits[8..]),
        14 => digits[8..].to_owned(),
        _ => return None,
    };
    let (year, month, day) = (&digits[..4], &digits[4..6], &digits[6..8]);
    instant::parse(&format!(
        "{year}-{month}-{day}T{}:{}:{}Z",
        &clock[..2],
        &clock[2..4],
        &clock[4..]
    ))
}

/// PATTERNS in ssh_config(5): a comma-separated list with `*` and `?`; one that matches after `!` refuses.
fn matches_list(list: &str, text: &str) -> bool {
    let mut found = false;
    for pattern in unquoted(list).split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_pattern(pattern.as_bytes(), text.as_bytes()) => return false,
            None if matches_pattern(pattern.as_bytes(), text.as_bytes()) => found = true,
            _ => {}
        }
    }
    found
}

/// The texts that it is called with are ours and short.
fn matches_pattern(pattern: &[u8], text: &[u8]) -> bool {
    // reached[n]: the pattern so far matches the first n bytes.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for &letter in pattern {
        if letter == b'*' {
            let first = reached.iter().position(|&hit| hit).unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            for at in (0..text.len()).rev() {
                reached[at + 1] = reached[at] && (letter == b'?' || letter == text[at]);
            }
            reached[0] = false;
        }
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use ssh_key::private::{Ed25519Keypair, PrivateKey};
    use ssh_key::{HashAlg, LineEnding, SshSig};

    use super::{NAMESPACE, Verdict, check};

    #[test]
    fn no_bit_of_a_signature_can_be_another() {
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]));
        let content = b"a bundle";
        let signature = SshSig::sign(&key, NAMESPACE, HashAlg::Sha512, content).unwrap();
        let armored = signature.to_pem(LineEnding::LF).unwrap().into_bytes();
        let signers = format!("springtide {}\n", key.public_key().to_openssh().unwrap());
        let verdict = |armored: &[u8]| check(content, armored, signers.as_bytes(), 0);
        assert_eq!(verdict(&armored), Verdict::Allowed);

        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let body = armored.iter().position(|&byte| byte == b'\n').unwrap();
        let mut altered = 0;
        for at in body..armored.len() - "\n-----END SSH SIGNATURE-----\n".len() {
            let Some(value) = alphabet.iter().position(|&letter| letter == armored[at]) else {
                continue;
            };
            for bit in 0..6 {
                let mut other = armored.clone();
                other[at] = alphabet[value ^ (1 << bit)];
                assert_ne!(verdict(&other), Verdict::Allowed, "byte {at}, bit {bit}");
                altered += 1;
            }
        }
        assert!(altered > 1000, "{altered}");
    }
}
