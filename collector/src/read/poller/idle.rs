//! Decides how often a namespace is read: the law, without a clock.
//!
//! Each walk goes through the hash table of the whole host, whatever the namespace holds. So one without sockets is not
//! read at all, and one in which nothing happens ever more rarely, until something does.

use crate::kernel::sockstat::InUse;

/// The state of one namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// Most polls from one walk to the next.
    longest: u32,
    /// Polls from the last walk to the next.
    interval: u32,
    /// Polls to leave out before the next walk.
    left: u32,
    in_use: Option<InUse>,
}

/// Signs that are known without a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    /// Number of sockets, where the kernel has it.
    pub in_use: Option<InUse>,
    /// Whether no number covers some of the requested states.
    pub uncounted_states: bool,
    /// A socket has closed since the last walk.
    pub closed: bool,
}

impl Idle {
    /// A namespace that is read at least every `longest` polls (at least 1) when it has sockets.
    pub(super) fn new(longest: u32) -> Self {
        Self {
            longest,
            interval: 1,
            left: 0,
            in_use: None,
        }
    }

    /// Whether this poll reads it.
    pub(super) fn is_due(&mut self, signs: &Signs) -> bool {
        let empty = signs.in_use == Some(InUse::default()) && !signs.uncounted_states;
        let changed = signs.closed || signs.in_use != self.in_use;
        self.in_use = signs.in_use;
        if empty {
            (self.interval, self.left) = (1, 0);
            return false;
        }
        if changed {
            (self.interval, self.left) = (1, 0);
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        true
    }

    /// A walk was done; `changed`: whether its result differs from the one before.
    pub(super) fn walked(&mut self, changed: bool) {
        self.interval = match changed {
            true => 1,
            false => (self.interval * 2).min(self.longest),
        };
        self.left = self.interval - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(sockets: u64, closed: bool) -> Signs {
        Signs {
            in_use: Some(InUse {
                sockets,
                time_wait: 0,
            }),
            uncounted_states: false,
            closed,
        }
    }

    /// Tells which of the polls are walks, when nothing is ever found changed.
    fn walks(idle: &mut Idle, polls: &[Signs]) -> String {
        let walk = |signs: &Signs| {
            let due = idle.is_due(signs);
            if due {
                idle.walked(false);
            }
            if due { 'w' } else { '.' }
        };
        polls.iter().map(walk).collect()
    }

    #[test]
    fn without_sockets_there_is_no_walk() {
        let mut idle = Idle::new(8);
        assert_eq!(walks(&mut idle, &[signs(0, false); 20]), ".".repeat(20));
        // The first socket is read at once.
        assert!(idle.is_due(&signs(1, false)));
    }

    #[test]
    fn where_nothing_happens_walks_become_rare_up_to_a_limit() {
        let mut idle = Idle::new(8);
        assert_eq!(
            walks(&mut idle, &[signs(3, false); 30]),
            "w.w...w.......w.......w......."
        );
        assert_eq!(walks(&mut Idle::new(1), &[signs(3, false); 4]), "wwww");
    }

    #[test]
    fn a_socket_more_or_less_or_a_close_brings_a_walk_at_once() {
        for sign in [signs(4, false), signs(2, false), signs(3, true)] {
            let mut idle = Idle::new(8);
            walks(&mut idle, &[signs(3, false); 8]);
            assert!(idle.is_due(&sign));
            idle.walked(true);
            assert!(idle.is_due(&sign));
        }
    }

    #[test]
    fn where_the_kernel_does_not_count_an_empty_namespace_is_read_rarely() {
        let unknown = Signs {
            in_use: None,
            uncounted_states: false,
            closed: false,
        };
        assert_eq!(walks(&mut Idle::new(4), &[unknown; 10]), "w.w...w...");
        let uncounted = Signs {
            uncounted_states: true,
            ..signs(0, false)
        };
        assert_eq!(walks(&mut Idle::new(4), &[uncounted; 10]), "w.w...w...");
    }
}
