//! Names of hosts and PoPs.

use crate::sample::fields::{HOST_LIMIT, POP_LIMIT};

/// A host's name, as it can stand in a file's name.
pub(crate) fn parse_host(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the host needs a name".to_owned());
    }
    parse_any_host(text)
}

/// The same, or empty.
pub(crate) fn parse_any_host(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.len() > HOST_LIMIT || !text.bytes().all(fits) || text.starts_with('.') {
        return Err(format!(
            "a host's name has at most {HOST_LIMIT} letters, digits, '-', '_' and '.'"
        ));
    }
    Ok(text.to_owned())
}

/// A PoP's name, or empty.
pub(crate) fn parse_pop(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.len() > POP_LIMIT || !text.bytes().all(fits) || text.starts_with('-') {
        return Err(format!(
            "a PoP's name has at most {POP_LIMIT} lower-case letters, digits and '-'"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_a_path() {
        for wrong in ["", "a/b", "..", ".hidden", "a b", "ü"] {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_host("ams-1.example"), Ok("ams-1.example".to_owned()));
        assert!(parse_pop("AMS").is_err());
        assert_eq!(parse_pop(""), Ok(String::new()));
    }
}
