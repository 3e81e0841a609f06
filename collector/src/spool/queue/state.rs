//! Contents of the queue and progress of each sink: decisions only, no I/O.
//!
//! The queue is a row of segments with rising numbers, each a run of records. A segment lives on disk, or in memory while
//! the disk takes nothing. Each sink reads through a lane: it *takes* records in order, and resolves each that it took as
//! delivered or dropped. A lane's *floor* is its first unresolved record: a segment below all floors is removed.
//!
//! Longer than 400 lines: the invariant of floors and segments spans all of its methods.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cursor::Position;
use crate::accounting::{Accounting, Cause, SinkId};

/// Above this much unread the sinks do not keep up, bytes: then compressing costs less than the disk.
const LAG: u64 = 4 << 20;

/// A run of records.
pub(super) struct Segment {
    pub(super) id: u64,
    /// Bytes that are complete records.
    pub(super) length: u64,
    pub(super) rows: u64,
    /// When its first and its last record came.
    pub(super) born: Instant,
    pub(super) newest: Instant,
    /// Whether nothing more is appended.
    pub(super) sealed: bool,
    /// Whether its file outlives a power cut.
    pub(super) synced: bool,
    /// Its bytes, when it is not on disk.
    pub(super) memory: Option<Arc<Vec<u8>>>,
}

impl Segment {
    pub(super) fn new(id: u64, memory: Option<Arc<Vec<u8>>>, now: Instant) -> Self {
        Self {
            id,
            length: 0,
            rows: 0,
            born: now,
            newest: now,
            sealed: false,
            synced: false,
            memory,
        }
    }
}

/// Progress of one sink.
pub(super) struct LaneState {
    sink: SinkId,
    read: Position,
    /// Rows of the segment at `read` that were taken.
    rows_taken: u64,
    in_flight: VecDeque<InFlight>,
}

struct InFlight {
    at: Position,
    rows: u64,
    rows_before: u64,
    outcome: Option<Outcome>,
    /// Why its segment is gone: what is in flight cannot be read again.
    orphan: Option<Cause>,
}

/// Outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has it.
    Delivered,
    /// It will never have it.
    Dropped(Cause),
}

/// Where a lane reads next.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) at: Position,
    /// Bytes of the segment that are complete records.
    pub(super) length: u64,
    pub(super) memory: Option<Arc<Vec<u8>>>,
}

/// The queue.
pub(super) struct State {
    pub(super) segments: VecDeque<Segment>,
    pub(super) lanes: Vec<LaneState>,
    /// Files to remove.
    pub(super) doomed: Vec<u64>,
    /// Set when no record will follow: sinks have until then.
    pub(super) closing: Option<Instant>,
    next_id: u64,
    accounting: Arc<Accounting>,
}

impl State {
    /// The state that `segments`, oldest first, and cursors on them give. `next_id` is above all numbers ever used.
    pub(super) fn new(
        segments: VecDeque<Segment>,
        lanes: Vec<LaneState>,
        next_id: u64,
        accounting: Arc<Accounting>,
    ) -> Self {
        let mut state = Self {
            segments,
            lanes,
            doomed: Vec::new(),
            closing: None,
            next_id,
            accounting,
        };
        state.remove_passed();
        state
    }

    /// Numbers a segment.
    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The segment that is appended to.
    pub(super) fn open(&mut self) -> Option<&mut Segment> {
        self.segments.back_mut().filter(|segment| !segment.sealed)
    }

    /// Ends the segment that is appended to.
    pub(super) fn seal(&mut self) {
        if let Some(segment) = self.open() {
            segment.sealed = true;
            self.remove_passed();
        }
    }

    /// A record of `bytes` and `rows` has been appended to the open segment.
    pub(super) fn appended(&mut self, bytes: u64, rows: u64, now: Instant) {
        if let Some(segment) = self.open() {
            segment.length += bytes;
            segment.rows += rows;
            segment.newest = now;
        }
    }

    /// Bytes on disk, and in memory.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.segments
            .iter()
            .fold((0, 0), |(disk, memory), segment| {
                if segment.memory.is_some() {
                    (disk, memory + segment.length)
                } else {
                    (disk + segment.length, memory)
                }
            })
    }

    /// Drops the oldest segments until `bytes` more on disk stay within `limit`.
    pub(super) fn make_room(&mut self, bytes: u64, limit: u64) {
        while self.bytes().0 + bytes > limit {
            if self.segments.len() == 1 {
                self.seal();
            }
            if !self.drop_oldest(Cause::QueueBytes) {
                break;
            }
        }
    }

    /// Drops segments whose every record is older than `age`; ends the open one in time for that.
    pub(super) fn drop_aged(&mut self, age: Duration, now: Instant) {
        let old = |since: Instant, age| now.duration_since(since) > age;
        if self
            .open()
            .is_some_and(|segment| old(segment.born, age / 8))
        {
            self.seal();
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| old(segment.newest, age))
        {
            if !self.drop_oldest(Cause::QueueAge) {
                break;
            }
        }
    }

    /// Drops the oldest segment, unless it is being appended to. What is in flight of it stays so.
    fn drop_oldest(&mut self, cause: Cause) -> bool {
        if self.segments.front().is_none_or(|segment| !segment.sealed) {
            return false;
        }
        let Some(segment) = self.segments.pop_front() else {
            return false;
        };
        for lane in &mut self.lanes {
            if lane.read.segment <= segment.id {
                let taken = if lane.read.segment == segment.id {
                    lane.rows_taken
                } else {
                    0
                };
                self.accounting
                    .dropped(lane.sink, segment.rows - taken, cause);
                lane.enter(segment.id + 1);
            }
            for record in &mut lane.in_flight {
                if record.at.segment == segment.id {
                    record.orphan = Some(cause);
                }
            }
        }
        if segment.memory.is_none() {
            self.doomed.push(segment.id);
        }
        true
    }

    /// Removes the segments that every lane has passed.
    pub(super) fn remove_passed(&mut self) {
        while let Some(segment) = self.segments.front()
            && segment.sealed
            && self.lanes.iter().all(|lane| lane.passed(segment))
        {
            if segment.memory.is_none() {
                self.doomed.push(segment.id);
            }
            self.segments.pop_front();
        }
    }

    /// When the oldest segment that some lane has not passed was begun.
    pub(super) fn oldest_unresolved(&self) -> Option<Instant> {
        let waits = |segment: &&Segment| self.lanes.iter().any(|lane| !lane.passed(segment));
        self.segments.iter().find(waits).map(|segment| segment.born)
    }

    /// Whether some lane is far behind.
    pub(super) fn lags(&self) -> bool {
        self.lanes.iter().any(|lane| {
            let mut unread = 0;
            for segment in self.segments.iter().rev() {
                if segment.id < lane.read.segment || unread > LAG {
                    break;
                }
                unread += segment.length;
                if segment.id == lane.read.segment {
                    unread -= lane.read.offset;
                }
            }
            unread > LAG
        })
    }

    /// The lane's next record, if there is one.
    pub(super) fn next(&mut self, lane: usize) -> Option<Place> {
        loop {
            let lane = &mut self.lanes[lane];
            let index = self
                .segments
                .partition_point(|segment| segment.id < lane.read.segment);
            let segment = self.segments.get(index)?;
            if segment.id > lane.read.segment {
                lane.enter(segment.id);
            }
            if lane.read.offset < segment.length {
                return Some(Place {
                    at: lane.read,
                    length: segment.length,
                    memory: segment.memory.clone(),
                });
            }
            if !segment.sealed {
                return None;
            }
            // Rows that were appended and not found again are known only now.
            let lost = segment.rows - lane.rows_taken;
            let next = segment.id + 1;
            lane.enter(next);
            if lost > 0 {
                self.accounting.dropped(lane.sink, lost, Cause::Unreadable);
            }
            self.remove_passed();
        }
    }

    /// Takes the record at `place`, which ends at `end`. False when it has been dropped meanwhile, or has more rows than
    /// its segment.
    pub(super) fn take(&mut self, lane: usize, place: &Place, end: u64, rows: u64) -> bool {
        let lane = &mut self.lanes[lane];
        let Ok(index) = self
            .segments
            .binary_search_by_key(&place.at.segment, |segment| segment.id)
        else {
            return false;
        };
        if lane.read != place.at || lane.rows_taken + rows > self.segments[index].rows {
            return false;
        }
        lane.in_flight.push_back(InFlight {
            at: place.at,
            rows,
            rows_before: lane.rows_taken,
            outcome: None,
            orphan: None,
        });
        lane.read.offset = end;
        lane.rows_taken += rows;
        true
    }

    /// Steps over bytes that are not a record.
    pub(super) fn skip(&mut self, lane: usize, place: &Place, end: u64) {
        let lane = &mut self.lanes[lane];
        if lane.read == place.at {
            lane.read.offset = end;
        }
    }

    /// Records the outcome of the record at `at`; the lane's new floor, when it has risen. Resolving a record that is not in
    /// flight changes nothing.
    pub(super) fn resolve(
        &mut self,
        lane: usize,
        at: Position,
        outcome: Outcome,
    ) -> Option<Position> {
        let state = &mut self.lanes[lane];
        let index = state
            .in_flight
            .binary_search_by_key(&at, |record| record.at)
            .ok()?;
        state.in_flight[index].outcome = Some(outcome);
        let mut risen = false;
        while let Some(outcome) = state.in_flight.front().and_then(|record| record.outcome)
            && let Some(record) = state.in_flight.pop_front()
        {
            risen = true;
            match outcome {
                Outcome::Delivered => self.accounting.delivered(state.sink, record.rows),
                Outcome::Dropped(cause) => self.accounting.dropped(state.sink, record.rows, cause),
            }
        }
        let floor = state.floor();
        if risen {
            self.remove_passed();
        }
        risen.then_some(floor)
    }

    /// Gives back what the lane has in flight, to be taken again. What is not in the queue any more is dropped.
    pub(super) fn rewind(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        let mut first = None;
        for record in std::mem::take(&mut lane.in_flight) {
            match (record.orphan, record.outcome) {
                (Some(_), Some(Outcome::Delivered)) => {
                    self.accounting.delivered(lane.sink, record.rows)
                }
                (Some(_), Some(Outcome::Dropped(cause))) | (Some(cause), None) => {
                    self.accounting.dropped(lane.sink, record.rows, cause);
                }
                (None, _) => {
                    first.get_or_insert((record.at, record.rows_before));
                }
            }
        }
        if let Some((at, rows)) = first {
            (lane.read, lane.rows_taken) = (at, rows);
        }
    }

    /// Whether the lane has nothing to read and nothing in flight.
    pub(super) fn idle(&mut self, lane: usize) -> bool {
        self.next(lane).is_none() && self.lanes[lane].in_flight.is_empty()
    }
}

impl LaneState {
    /// A lane that starts at `read`, before which `rows_taken` rows of its segment lie.
    pub(super) fn new(sink: SinkId, read: Position, rows_taken: u64) -> Self {
        Self {
            sink,
            read,
            rows_taken,
            in_flight: VecDeque::new(),
        }
    }

    fn enter(&mut self, segment: u64) {
        self.read = Position { segment, offset: 0 };
        self.rows_taken = 0;
    }

    fn floor(&self) -> Position {
        self.in_flight.front().map_or(self.read, |record| record.at)
    }

    fn passed(&self, segment: &Segment) -> bool {
        let floor = self.floor();
        floor.segment > segment.id
            || (floor.segment == segment.id
                && floor.offset >= segment.length
                && self.rows_taken == segment.rows)
    }
}
