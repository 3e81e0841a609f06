//! Complaints that do not repeat themselves: the first is told at once, its likes are counted and told once a minute.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// Kinds of complaint that are remembered. There are a few dozen; what embeds a name of its own starts over.
const KINDS: usize = 256;

/// Where complaints go, shared by all threads.
pub struct Reporter {
    tell: Box<dyn Fn(&str) + Send + Sync>,
    told: Mutex<HashMap<String, Told>>,
}

struct Told {
    at: Instant,
    unsaid: u64,
}

impl Reporter {
    /// Gives what is to be said to `tell`, one line at a time.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            tell: Box::new(tell),
            told: Mutex::default(),
        }
    }

    /// Complains, unless a complaint that differs in numbers only was told within the last minute.
    pub fn complain(&self, what: impl Display) {
        let text = what.to_string().replace('\n', " ");
        let now = Instant::now();
        // Told under the lock, so that lines keep their order.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = line(&mut told, &text, now) {
            (self.tell)(&line);
        }
    }
}

/// What to say about `text`, if anything.
fn line(told: &mut HashMap<String, Told>, text: &str, now: Instant) -> Option<String> {
    let kind = kind(text);
    if let Some(before) = told.get_mut(&kind) {
        if now.duration_since(before.at) < INTERVAL {
            before.unsaid += 1;
            return None;
        }
        let unsaid = std::mem::take(&mut before.unsaid);
        before.at = now;
        return Some(match unsaid {
            0 => text.to_owned(),
            _ => format!("{text} ({unsaid} more like it since the last)"),
        });
    }
    if told.len() >= KINDS {
        told.clear();
    }
    told.insert(kind, Told { at: now, unsaid: 0 });
    Some(text.to_owned())
}

/// The text without its numbers.
fn kind(text: &str) -> String {
    let mut kind = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            kind.push(c);
        } else if !kind.ends_with('#') {
            kind.push('#');
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_its_likes_are_counted() {
        let (mut told, start) = (HashMap::new(), Instant::now());
        let mut at = |seconds, text| line(&mut told, text, start + Duration::from_secs(seconds));
        assert_eq!(
            at(0, "no answer after 10 ms").as_deref(),
            Some("no answer after 10 ms")
        );
        assert_eq!(at(1, "no answer after 200 ms"), None);
        assert_eq!(at(2, "no answer after 3 ms"), None);
        assert_eq!(at(3, "refused").as_deref(), Some("refused"));
        let later = at(61, "no answer after 9 ms").unwrap();
        assert_eq!(
            later,
            "no answer after 9 ms (2 more like it since the last)"
        );
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut told = HashMap::new();
        for number in 0..10_000_u32 {
            let name: String = number
                .to_string()
                .bytes()
                .map(|b| char::from(b + 49))
                .collect();
            assert!(line(&mut told, &name, Instant::now()).is_some());
        }
        assert!(told.len() <= KINDS);
    }
}
