//! Text that people and files take.

use std::io;

/// The operating system's own words for an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Any text from elsewhere on one short line of ASCII.
pub fn printable(text: &str) -> String {
    let shown: String = text
        .chars()
        .flat_map(|c| {
            if c == ' ' || c.is_ascii_graphic() {
                vec![c]
            } else {
                c.escape_default().collect()
            }
        })
        .collect();
    if shown.len() <= 120 {
        shown
    } else {
        format!("{}...", &shown[..117])
    }
}

/// Any text on one line of at most 300 characters.
pub fn one_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(300)
        .collect()
}

/// Bytes in hexadecimal digits, lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // A state has a way for each of 100,000 routes.
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
