//! Text from elsewhere, and bytes as text.

/// Any text on one short line of ASCII.
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

/// Bytes in hexadecimal digits, lower case.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // A state has a way for each of 100,000 routes.
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
