//! Drives every remote sink in a thread of its own: gives it its lane of the queue, and after a failure waits and lets it
//! try again, for as long as the collector runs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::thread;
use std::time::Duration;

use crate::spool::queue::Lane;

/// A sink that takes its messages from the queue.
pub(crate) trait Remote: Send {
    /// Delivers records of the lane, and resolves them, until the lane is closed. After an error it is called again.
    fn deliver(&mut self, lane: &mut Lane) -> Result<(), Failure>;
}

/// The first and the longest wait after failures of one kind; each is twice the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// After the first failure since something was delivered.
    pub first: Duration,
    /// However many follow.
    pub longest: Duration,
}

/// Why nothing more could be delivered.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The failure and its object; rows wait in the queue meanwhile.
    pub what: String,
    /// Times to wait.
    pub waits: Waits,
    /// Whether the records that were taken and not resolved go back to the queue; else the sink keeps them.
    pub give_back: bool,
}

/// Starts the thread.
pub(crate) fn start(name: &'static str, mut remote: Box<dyn Remote>, lane: Lane) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || drive(&mut *remote, lane))
        .map(drop)
}

fn drive(remote: &mut dyn Remote, mut lane: Lane) {
    let mut back_off = BackOff::default();
    while !lane.expired() {
        let before = lane.delivered();
        let Err(failure) = remote.deliver(&mut lane) else {
            return;
        };
        let Failure {
            what,
            waits,
            give_back,
        } = failure;
        if give_back {
            lane.rewind();
        }
        let name = lane.name();
        lane.reporter()
            .complain(format!("{name}: {what}: rows wait in the queue"));
        if lane.delivered() > before {
            back_off = BackOff::default();
        }
        lane.pause(jitter(back_off.next(waits)));
    }
}

/// The last wait and its kind.
#[derive(Default)]
struct BackOff(Option<(Waits, Duration)>);

impl BackOff {
    fn next(&mut self, waits: Waits) -> Duration {
        let wait = match self.0 {
            Some((kind, last)) if kind == waits => waits.longest.min(2 * last),
            _ => waits.first,
        };
        self.0 = Some((waits, wait));
        wait
    }
}

/// Between half of the time and all of it, so that collectors do not come back together.
fn jitter(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1024;
    time / 2 + time / 2 * random as u32 / 1024
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;
    use crate::accounting::Accounting;
    use crate::report::Reporter;
    use crate::sample::batch::Message;
    use crate::spool::queue::{Limits, Outcome, Queue, Taken};
    use crate::stats::Stats;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_with_another_kind() {
        let seconds = |first, longest| Waits {
            first: Duration::from_secs(first),
            longest: Duration::from_secs(longest),
        };
        let (soon, late) = (seconds(1, 5), seconds(7, 60));
        let mut back_off = BackOff::default();
        let waits = [soon, soon, soon, soon, soon, late, late, soon];
        let waits = waits.map(|kind| back_off.next(kind).as_secs());
        assert_eq!(waits, [1, 2, 4, 5, 5, 7, 14, 1]);
    }

    #[test]
    fn waits_are_spread_over_half_of_their_time() {
        for _ in 0..100 {
            let wait = jitter(Duration::from_secs(8));
            assert!((Duration::from_secs(4)..=Duration::from_secs(8)).contains(&wait));
        }
    }

    /// Takes one record, fails and gives it back `failures` times, then takes all.
    struct Unsteady {
        failures: u32,
        taken: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl Remote for Unsteady {
        fn deliver(&mut self, lane: &mut Lane) -> Result<(), Failure> {
            loop {
                let record = match lane.take(Duration::from_secs(1)) {
                    Taken::Record(record) => record,
                    Taken::Nothing => continue,
                    Taken::Closed => return Ok(()),
                };
                if self.failures > 0 {
                    self.failures -= 1;
                    let wait = Duration::from_millis(1);
                    return Err(Failure {
                        what: "no answer".to_owned(),
                        waits: Waits {
                            first: wait,
                            longest: wait,
                        },
                        give_back: true,
                    });
                }
                self.taken.lock().unwrap().push(record.bytes.clone());
                lane.resolve(record.at, Outcome::Delivered);
            }
        }
    }

    #[test]
    fn what_is_given_back_is_delivered_in_order_when_the_sink_works_again() {
        let directory = tempfile::tempdir().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = lines.clone();
        let reporter = Arc::new(Reporter::new(move |_, text| {
            written.lock().unwrap().push(text.to_owned());
        }));
        let accounting = Arc::new(Accounting::default());
        let sinks = [(accounting.add("unsteady"), "unsteady")];
        let limits = Limits {
            bytes: 1 << 20,
            age: Duration::from_secs(3600),
        };
        let mut stats = Stats::default();
        let (mut queue, mut lanes) = Queue::open(
            directory.path(),
            &sinks,
            limits,
            &accounting,
            &reporter,
            &mut stats,
        )
        .unwrap();
        let taken = Arc::default();
        let remote = Unsteady {
            failures: 3,
            taken: Arc::clone(&taken),
        };
        let messages: Vec<Vec<u8>> = (0..5_u8).map(|number| vec![1, number]).collect();
        for bytes in &messages {
            accounting.read(1);
            queue.append(Message { rows: 1, bytes }).unwrap();
        }
        start("unsteady", Box::new(remote), lanes.remove(0)).unwrap();
        queue.close(Instant::now() + Duration::from_secs(60));
        assert_eq!(*taken.lock().unwrap(), messages);
        assert_eq!(accounting.snapshot().sinks[0].rows_delivered, 5);
        assert_eq!(
            lines.lock().unwrap()[0],
            "unsteady: no answer: rows wait in the queue"
        );
    }
}
