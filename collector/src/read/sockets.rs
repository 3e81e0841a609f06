//! Remembers the sockets of a network namespace from one walk to the next, 16 bytes for each: open
//! addressing, keyed by cookie.
//!
//! Nothing is taken out of its place: sockets that the last two walks did not give are left behind
//! when the table is made anew, which happens when it fills, when it has become far too large, and
//! when walks can be numbered no further.

use std::collections::HashMap;

use crate::kernel::starts::Start;
use crate::read::sampling::spread;

/// A socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remembered {
    cookie: u64,
    /// Digest of what was last exported of it.
    pub digest: u32,
    /// The walk that gave it last.
    walk: u16,
    /// Its congestion control algorithm; 0 for unknown.
    pub algorithm: u8,
    /// Whether its start values are remembered.
    pub started: bool,
}

const _: () = assert!(size_of::<Remembered>() == 16);

/// State of a walk's socket in the table.
pub(crate) enum Visit<'a> {
    /// Not known before.
    New(&'a mut Remembered),
    /// Known from an earlier walk.
    Known(&'a mut Remembered),
    /// This walk has given it already.
    Duplicate,
}

/// Fewest places.
const SMALLEST: usize = 64;

/// See the module.
pub(crate) struct SocketTable {
    places: Box<[Remembered]>,
    used: usize,
    walk: u16,
    seen: usize,
    touched: u64,
    /// Start values of connections, as far as they are known: only where springtide-edge sets them.
    starts: HashMap<u64, Start>,
}

impl Default for SocketTable {
    fn default() -> Self {
        Self {
            places: Box::default(),
            used: 0,
            walk: 1,
            seen: 0,
            touched: 0,
            starts: HashMap::new(),
        }
    }
}

impl SocketTable {
    /// A walk begins.
    pub(crate) fn begin(&mut self) {
        if self.seen * 8 < self.places.len() && self.places.len() > SMALLEST {
            self.rebuild();
        }
        if self.walk == u16::MAX {
            self.renumber();
        }
        self.walk += 1;
        self.seen = 0;
    }

    /// Makes room for so many sockets, in a table that has none yet: growing step by step costs more than the look-ups of a
    /// whole walk.
    pub(crate) fn reserve(&mut self, sockets: usize) {
        if self.places.is_empty() {
            self.places = vec![Remembered::default(); room_for(sockets)].into();
        }
    }

    /// Sockets that the walk has given so far.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// Brings the socket's place into the processor's cache: on a large table a look-up waits for memory, and several that
    /// are announced together wait at once.
    #[inline(always)]
    pub(crate) fn expect(&mut self, cookie: u64) {
        if let Some(place) = self.places.get(self.home(cookie)) {
            // A use that the compiler cannot leave out.
            self.touched ^= place.cookie;
        }
    }

    /// The walk gives the socket.
    #[inline]
    pub(crate) fn visit(&mut self, cookie: u64) -> Visit<'_> {
        // At most 13 of 16 places are taken.
        if self.used * 16 >= self.places.len() * 13 {
            self.rebuild();
        }
        let at = self.place(cookie);
        let place = &mut self.places[at];
        if place.cookie == 0 {
            self.used += 1;
            self.seen += 1;
            *place = Remembered {
                cookie,
                walk: self.walk,
                ..Remembered::default()
            };
            return Visit::New(place);
        }
        if place.walk == self.walk {
            return Visit::Duplicate;
        }
        place.walk = self.walk;
        self.seen += 1;
        Visit::Known(place)
    }

    /// Finds the socket, if it is known.
    pub(crate) fn find(&self, cookie: u64) -> Option<&Remembered> {
        if self.places.is_empty() {
            return None;
        }
        let place = &self.places[self.place(cookie)];
        (place.cookie != 0).then_some(place)
    }

    /// Remembers what the socket started with, which never changes.
    #[cold]
    pub(crate) fn note_start(&mut self, cookie: u64, start: Start) {
        if self.places.is_empty() {
            return;
        }
        let at = self.place(cookie);
        if self.places[at].cookie == cookie {
            self.places[at].started = true;
            self.starts.insert(cookie, start);
        }
    }

    /// Start values of the socket, if they are known.
    pub(crate) fn start(&self, cookie: u64) -> Option<&Start> {
        if self.starts.is_empty() {
            return None;
        }
        self.starts.get(&cookie)
    }

    /// Where the cookie belongs.
    #[inline(always)]
    fn home(&self, cookie: u64) -> usize {
        ((u128::from(spread(cookie)) * self.places.len() as u128) >> 64) as usize
    }

    /// The place that has the cookie, or the free one where it belongs. The table must not be full.
    #[inline(always)]
    fn place(&self, cookie: u64) -> usize {
        let length = self.places.len();
        let mut at = self.home(cookie);
        loop {
            let found = self.places[at].cookie;
            if found == cookie || found == 0 {
                return at;
            }
            at += 1;
            if at == length {
                at = 0;
            }
        }
    }

    /// Makes the table anew without what the last two walks did not give, with room to grow.
    #[cold]
    fn rebuild(&mut self) {
        let kept = |place: &&Remembered| place.cookie != 0 && self.walk - place.walk <= 1;
        let live = self.places.iter().filter(kept).count();
        let mut table = Self {
            places: vec![Remembered::default(); room_for(live)].into(),
            used: live,
            walk: self.walk,
            seen: self.seen,
            touched: self.touched,
            starts: HashMap::new(),
        };
        for place in self.places.iter().filter(kept) {
            let at = table.place(place.cookie);
            table.places[at] = *place;
        }
        let mut starts = std::mem::take(&mut self.starts);
        starts.retain(|&cookie, _| table.find(cookie).is_some());
        starts.shrink_to(2 * starts.len());
        table.starts = starts;
        *self = table;
    }

    /// Starts the walks' numbers anew.
    fn renumber(&mut self) {
        for place in &mut self.places {
            place.walk = u16::from(place.walk == self.walk);
        }
        self.walk = 1;
    }
}

/// Places for so many sockets and for some that come.
fn room_for(sockets: usize) -> usize {
    (sockets * 13 / 8).max(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    fn is_new(table: &mut SocketTable, cookie: u64) -> bool {
        match table.visit(cookie) {
            Visit::New(_) => true,
            Visit::Known(_) => false,
            Visit::Duplicate => panic!("{cookie} is not a duplicate"),
        }
    }

    #[test]
    fn two_hundred_thousand_sockets_take_less_than_six_megabytes() {
        let mut table = SocketTable::default();
        for _ in 0..3 {
            table.begin();
            for cookie in 1..=200_000 {
                table.visit(cookie);
            }
        }
        assert!(table.places.len() * size_of::<Remembered>() < 6_000_000);
        assert_eq!(table.seen(), 200_000);
    }

    #[test]
    fn start_values_stay_as_long_as_their_socket_and_no_longer() {
        let mut table = SocketTable::default();
        for walk in 0..1000_u64 {
            table.begin();
            for cookie in (0..500).map(|at| 1 + walk * 250 + at) {
                table.visit(cookie);
                if cookie % 2 == 0 {
                    table.note_start(cookie, Start::default());
                }
            }
            assert!(table.starts.len() <= 2048, "{}", table.starts.len());
            // Those of this walk and of the one before.
            for cookie in (1 + walk.saturating_sub(1) * 250)..(501 + walk * 250) {
                let known = table.find(cookie).is_some_and(|socket| socket.started);
                assert_eq!(
                    (known, table.start(cookie).is_some()),
                    (cookie % 2 == 0, cookie % 2 == 0)
                );
            }
        }
        table.note_start(u64::MAX, Start::default());
        assert!(
            table.start(u64::MAX).is_none(),
            "a socket that is not known"
        );
    }

    #[test]
    fn what_was_reserved_is_not_made_anew() {
        let mut table = SocketTable::default();
        table.reserve(10_000);
        let places = table.places.len();
        for cookie in 1..=10_000 {
            table.visit(cookie);
        }
        assert_eq!(table.places.len(), places);
        table.reserve(1_000_000);
        assert_eq!(table.places.len(), places);
    }

    #[test]
    fn what_has_gone_is_left_behind_and_its_room_given_back() {
        let mut table = SocketTable::default();
        for walk in 0..1000_u64 {
            table.begin();
            for cookie in 0..500 {
                is_new(&mut table, 1 + walk * 250 + cookie);
            }
            assert!(table.places.len() <= 2048, "{}", table.places.len());
        }
        for _ in 0..4 {
            table.begin();
            table.visit(7);
        }
        assert_eq!(table.places.len(), SMALLEST);
    }

    #[test]
    fn walks_are_numbered_anew_without_a_socket_being_mistaken() {
        let mut table = SocketTable::default();
        for walk in 0..u32::from(u16::MAX) + 10 {
            table.begin();
            assert_eq!(is_new(&mut table, 1), walk == 0);
            if walk % 65_535 == 0 {
                // Seen again when the number of its walk has come round.
                table.visit(2);
            }
            assert!(matches!(table.visit(1), Visit::Duplicate));
        }
    }

    proptest! {
        #[test]
        fn a_table_knows_what_the_last_two_walks_gave(
            walks in prop::collection::vec(prop::collection::vec(1..400_u64, 0..300), 1..8),
        ) {
            let mut table = SocketTable::default();
            let mut digests = HashMap::new();
            let mut last: HashSet<u64> = HashSet::new();
            for cookies in walks {
                table.begin();
                let mut seen = HashSet::new();
                for cookie in cookies {
                    let digest = cookie as u32 + 7;
                    let first = seen.insert(cookie);
                    match table.visit(cookie) {
                        Visit::Duplicate => prop_assert!(!first),
                        Visit::Known(socket) => {
                            prop_assert!(first);
                            prop_assert_eq!(Some(&socket.digest), digests.get(&cookie));
                        }
                        Visit::New(socket) => {
                            prop_assert!(first && !last.contains(&cookie));
                            socket.digest = digest;
                            digests.insert(cookie, digest);
                        }
                    }
                }
                prop_assert_eq!(table.seen(), seen.len());
                for cookie in &seen {
                    prop_assert_eq!(table.find(*cookie).map(|socket| socket.digest), digests.get(cookie).copied());
                }
                prop_assert!(table.find(1000).is_none());
                last = seen;
            }
        }
    }
}
