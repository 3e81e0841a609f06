//! The filter's text.

use std::net::IpAddr;

use super::{CONDITIONS_LIMIT, DEPTH_LIMIT, End, Expression, Prefix};

/// Where the text is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct ParseError {
    /// Characters from the text's start, from 1.
    pub column: usize,
    /// The mistake there.
    pub what: String,
}

const CONDITIONS: &str = "sport, dport, port, src, dst or addr";

pub(super) fn parse(text: &str) -> Result<Expression, ParseError> {
    let mut parser = Parser {
        text,
        words: words(text),
        at: 0,
        conditions: 0,
    };
    let expression = parser.any(0)?;
    match parser.peek() {
        None => Ok(expression),
        Some(")") => Err(parser.error("this parenthesis closes nothing")),
        Some(word) => Err(parser.error(format!("'{word}' needs 'and' or 'or' before it"))),
    }
}

/// The words with their offsets; a parenthesis is a word by itself.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        let parenthesis = matches!(c, '(' | ')');
        if c.is_whitespace() || parenthesis {
            if let Some(start) = start.take() {
                words.push((start, &text[start..at]));
            }
            if parenthesis {
                words.push((at, &text[at..=at]));
            }
        } else {
            start = start.or(Some(at));
        }
    }
    words.extend(start.map(|start| (start, &text[start..])));
    words
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, &'a str)>,
    at: usize,
    conditions: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|&(_, word)| word)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    /// An error at the word that comes next.
    fn error(&self, what: impl Into<String>) -> ParseError {
        let offset = self
            .words
            .get(self.at)
            .map_or(self.text.len(), |word| word.0);
        ParseError {
            column: self.text[..offset].chars().count() + 1,
            what: what.into(),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Expression, ParseError> {
        let mut parts = vec![self.all(depth)?];
        while self.take("or") {
            parts.push(self.all(depth)?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Expression, ParseError> {
        let mut parts = vec![self.one(depth)?];
        while self.take("and") {
            parts.push(self.one(depth)?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, ParseError> {
        if depth > DEPTH_LIMIT {
            return Err(self.error(format!(
                "nested deeper than {DEPTH_LIMIT}: write it with fewer parentheses"
            )));
        }
        if self.take("not") {
            return Ok(match self.one(depth + 1)? {
                Expression::Not(inner) => *inner,
                inner => Expression::Not(Box::new(inner)),
            });
        }
        if self.take("(") {
            let inner = self.any(depth + 1)?;
            if !self.take(")") {
                return Err(self.error("')' is missing"));
            }
            return Ok(inner);
        }
        self.condition()
    }

    fn condition(&mut self) -> Result<Expression, ParseError> {
        use End::{Destination, Source};
        type Value = fn(&str, &[End]) -> Result<Vec<Expression>, String>;
        let (ends, value, needs): (&[End], Value, &str) = match self.peek() {
            Some("sport") => (&[Source], ports, "a port"),
            Some("dport") => (&[Destination], ports, "a port"),
            Some("port") => (&[Source, Destination], ports, "a port"),
            Some("src") => (&[Source], prefixes, "an address or a prefix"),
            Some("dst") => (&[Destination], prefixes, "an address or a prefix"),
            Some("addr") => (&[Source, Destination], prefixes, "an address or a prefix"),
            Some(word) => {
                return Err(self.error(format!("'{word}' is not a condition: use {CONDITIONS}")));
            }
            None => return Err(self.error(format!("a condition is missing: use {CONDITIONS}"))),
        };
        self.at += 1;
        let Some(list) = self.peek() else {
            return Err(self.error(format!("{needs} is missing")));
        };
        let mut parts = Vec::new();
        for item in list.split(',') {
            parts.extend(value(item, ends).map_err(|what| self.error(what))?);
        }
        self.conditions += parts.len();
        if self.conditions > CONDITIONS_LIMIT {
            return Err(self.error(format!(
                "more than {CONDITIONS_LIMIT} conditions: the kernel would test them all for every socket"
            )));
        }
        self.at += 1;
        Ok(one_or(parts, Expression::Any))
    }
}

fn one_or(
    mut parts: Vec<Expression>,
    many: impl FnOnce(Vec<Expression>) -> Expression,
) -> Expression {
    match parts.pop() {
        Some(part) if parts.is_empty() => part,
        part => {
            parts.extend(part);
            many(parts)
        }
    }
}

fn ports(text: &str, ends: &[End]) -> Result<Vec<Expression>, String> {
    let wrong = || {
        format!(
            "'{text}' is not a valid port: use a number from 0 to 65535, or a range such as 8000-8099"
        )
    };
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (from, to) = number(from).zip(number(to)).ok_or_else(wrong)?;
    if from > to {
        return Err(format!("'{text}' holds no port: write {to}-{from}"));
    }
    Ok(ends
        .iter()
        .map(|&end| Expression::Ports { end, from, to })
        .collect())
}

fn prefixes(text: &str, ends: &[End]) -> Result<Vec<Expression>, String> {
    let prefix = prefix(text)?;
    Ok(ends
        .iter()
        .map(|&end| Expression::Prefix { end, prefix })
        .collect())
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || {
        format!(
            "'{text}' is not a valid address or prefix: use one such as 10.0.0.0/8 or 2001:db8::/32"
        )
    };
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length
            .parse()
            .ok()
            .filter(|&length: &u8| length <= widest)
            .ok_or_else(wrong)?,
        Some(_) => return Err(wrong()),
        None => widest,
    };
    let (network, prefix) = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let network = (address.to_bits() & mask).into();
            (IpAddr::V4(network), Prefix::V4(network, length))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let network = (address.to_bits() & mask).into();
            (IpAddr::V6(network), Prefix::V6(network, length))
        }
    };
    if network != address {
        return Err(format!(
            "'{text}' has bits set beyond its length: write {network}/{length}"
        ));
    }
    Ok(prefix)
}
