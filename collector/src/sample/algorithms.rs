//! Names of congestion control algorithms as small numbers, so that remembering one costs a byte a socket.

use super::fields::NAME_LIMIT;

/// The names seen so far. The kernel has about fifteen; at most 255 are kept.
#[derive(Debug, Default)]
pub(crate) struct Algorithms {
    names: Vec<String>,
    /// The attribute that came last, and its number.
    last: (Vec<u8>, u8),
}

impl Algorithms {
    /// The number of the name in an INET_DIAG_CONG attribute; 0 when it has none that could be exported.
    #[inline]
    pub(crate) fn number(&mut self, attribute: &[u8]) -> u8 {
        if self.last.0 != attribute {
            self.last = (attribute.to_vec(), self.look_up(attribute));
        }
        self.last.1
    }

    #[cold]
    fn look_up(&mut self, attribute: &[u8]) -> u8 {
        let end = attribute
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(attribute.len());
        let name = match std::str::from_utf8(&attribute[..end]) {
            Ok(name) if (1..=NAME_LIMIT).contains(&name.len()) => name,
            _ => return 0,
        };
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or(self.names.len());
        let Ok(number) = u8::try_from(at + 1) else {
            return 0;
        };
        if known.is_none() {
            self.names.push(name.to_owned());
        }
        number
    }

    /// The name of a number; None for 0.
    pub(crate) fn name(&self, number: u8) -> Option<&str> {
        let at = usize::from(number).checked_sub(1)?;
        self.names.get(at).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_back() {
        let mut algorithms = Algorithms::default();
        let numbers = [
            &b"cubic\0"[..],
            b"bbr\0",
            b"cubic\0",
            b"cubic",
            b"",
            b"\0",
            b"\xff\0",
        ]
        .map(|attribute| algorithms.number(attribute));
        assert_eq!(numbers, [1, 2, 1, 1, 0, 0, 0]);
        assert_eq!(algorithms.name(1), Some("cubic"));
        assert_eq!(algorithms.name(2), Some("bbr"));
        assert_eq!((algorithms.name(0), algorithms.name(3)), (None, None));
        assert_eq!(algorithms.number(b"seventeen_letters\0"), 0);
    }

    #[test]
    fn more_names_than_numbers_are_unknown() {
        let mut algorithms = Algorithms::default();
        for at in 0..300 {
            let number = algorithms.number(format!("cc{at}").as_bytes());
            assert_eq!(usize::from(number), if at < 255 { at + 1 } else { 0 });
        }
    }
}
