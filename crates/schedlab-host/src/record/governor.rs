//! How much is told of operations that neither wait nor wake, so that recording costs the target little.
//!
//! Each return is told until that takes too much of the machine. Then sends are told by a hook in sockets, and
//! reads from the kernel's accounting, or by a hook where accounting does not tell them. When sends have
//! followed their tasks' patterns for a while, the hook goes, too: accounting tells how many there were. When
//! they leave their patterns it comes back, for longer if that was soon. Decides from counters only;
//! [`super::kernel`] acts.

use super::kernel::Telling;
use super::raw::Counters;
use schedlab_model::Nanos;

/// What telling one return of a system call costs, roughly: the hook and the record.
const RETURN_COST_NS: u64 = 200;
/// More of the machine's CPU time than this, in percent, is too dear.
const RETURN_SHARE_MAX: u64 = 1;
/// Share of sockets among the target's operations, in percent, from which counting loses little.
const SOCKET_SHARE_MIN: u64 = 80;
/// Polls in a row that must be too dear; one that is so many times too dear is enough.
const DEAR_POLLS: u32 = 2;
const DEAR_BY_FAR: u64 = 5;
/// Polls in a row in which sends must follow their patterns before the hook goes, the first time.
const PATIENCE: u32 = 5;
/// The most such polls, after the hook had to come back again and again.
const PATIENCE_MAX: u32 = 1 << 12;
/// Polls that are not judged after the hook went: tasks are looked at for the first time without it, and where in its
/// pattern a task is that was sending meanwhile shows only with its next send that waits or wakes.
const UNJUDGED: u32 = 1;
/// Share of sends that must follow a pattern, in percent, to begin and to go on without a hook.
const EXPECTED_BEGIN: u64 = 98;
const EXPECTED_KEEP: u64 = 95;
/// Reads that accounting cannot tell may be this share of all operations, in percent.
const UNSURE_MAX: u64 = 2;
/// Fewer operations tell nothing about shares.
const OPERATIONS_MIN: u64 = 500;

/// Judges the target's operations since the last poll.
pub(super) struct Governor {
    telling: Telling,
    time: Nanos,
    counters: Counters,
    dear: u32,
    /// Polls in a row in which sends followed their patterns, and how many there must be.
    steady: u32,
    patience: u32,
    /// Polls since the hook went.
    without: u32,
    cpus: usize,
}

impl Governor {
    /// Begins with every return told.
    pub(super) fn new(start: Nanos, cpus: usize) -> Governor {
        let (telling, counters) = (Telling::Returns, Counters::default());
        Governor { telling, time: start, counters, dear: 0, steady: 0, patience: PATIENCE, without: 0, cpus }
    }

    /// What to change to, if anything, from the counters at a moment.
    pub(super) fn judge(&mut self, now: Nanos, counters: Counters) -> Option<Telling> {
        let latest = counters.since(self.counters);
        let available = (now - self.time).0 * self.cpus as u64;
        // A poll of few operations is judged together with the next.
        if self.telling != Telling::Returns && latest.writes < OPERATIONS_MIN {
            return None;
        }
        (self.time, self.counters) = (now, counters);
        let next = match self.telling {
            Telling::Returns => {
                self.too_dear(latest, available).then(|| Telling::Sends { receives: unsure(latest) })
            }
            _ if unsure(latest) => Some(Telling::Sends { receives: true }),
            Telling::Sends { receives: true } => None,
            Telling::Sends { receives: false } => self.steady(latest).then_some(Telling::Patterns),
            Telling::Patterns => self.left(latest).then_some(Telling::Sends { receives: false }),
        };
        let next = next.filter(|next| *next != self.telling);
        if next == Some(Telling::Patterns) {
            self.without = 0;
        }
        self.telling = next.unwrap_or(self.telling);
        next
    }

    fn too_dear(&mut self, latest: Counters, available: u64) -> bool {
        let (cost, most) = (latest.operations * RETURN_COST_NS * 100, available * RETURN_SHARE_MAX);
        let dear = cost > most && latest.sockets * 100 > latest.operations * SOCKET_SHARE_MIN;
        self.dear = if dear { self.dear + 1 } else { 0 };
        self.dear >= DEAR_POLLS || (dear && cost > most * DEAR_BY_FAR)
    }

    fn steady(&mut self, latest: Counters) -> bool {
        self.steady = if expected(latest, EXPECTED_BEGIN) { self.steady + 1 } else { 0 };
        let enough = self.steady >= self.patience;
        if enough {
            self.steady = 0;
        }
        enough
    }

    /// Whether sends have left their patterns. The sooner they do, the longer the hook is to stay.
    fn left(&mut self, latest: Counters) -> bool {
        self.without += 1;
        if self.without <= UNJUDGED || expected(latest, EXPECTED_KEEP) {
            return false;
        }
        let soon = self.without <= self.patience * 2;
        self.patience = if soon { (self.patience * 2).min(PATIENCE_MAX) } else { PATIENCE };
        true
    }
}

fn expected(latest: Counters, percent: u64) -> bool {
    latest.expected * 100 >= latest.writes * percent
}

fn unsure(latest: Counters) -> bool {
    latest.reads_unsure >= OPERATIONS_MIN / 10 && latest.reads_unsure * 100 > latest.operations * UNSURE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(each: Counters, count: u64) -> Vec<Telling> {
        let mut governor = Governor::new(Nanos::ZERO, 2);
        let times = |number: u64| Counters {
            operations: each.operations * number,
            sockets: each.sockets * number,
            writes: each.writes * number,
            expected: each.expected * number,
            reads_unsure: each.reads_unsure * number,
        };
        (1..=count).filter_map(|poll| governor.judge(Nanos::from_millis(20 * poll), times(poll))).collect()
    }

    const BUSY: Counters =
        Counters { operations: 20_000, sockets: 20_000, writes: 10_000, expected: 10_000, reads_unsure: 0 };

    const SENDS: Telling = Telling::Sends { receives: false };

    #[test]
    fn sends_that_follow_patterns_need_no_hook() {
        assert_eq!(polls(BUSY, 20), [SENDS, Telling::Patterns]);
        assert_eq!(polls(Counters { expected: 9_000, ..BUSY }, 20), [SENDS]);
        assert_eq!(polls(Counters { reads_unsure: 5_000, ..BUSY }, 20), [Telling::Sends { receives: true }]);
    }

    #[test]
    fn what_costs_little_is_told_one_by_one() {
        assert_eq!(polls(Counters { operations: 1_000, sockets: 1_000, ..BUSY }, 20), []);
        let files = Counters { sockets: 10_000, ..BUSY };
        assert_eq!(polls(files, 20), [], "counting would lose what is not a socket's");
    }

    /// When what is changed to, if sends leave their patterns in each so many polls without the hook.
    fn changes(leave_after: u64, polls: u64) -> Vec<(u64, Telling)> {
        let mut governor = Governor::new(Nanos::ZERO, 2);
        let (mut total, mut changes, mut without) = (Counters::default(), Vec::new(), 0);
        for poll in 1..polls {
            without = if governor.telling == Telling::Patterns { without + 1 } else { 0 };
            total.operations += BUSY.operations;
            total.sockets += BUSY.sockets;
            total.writes += BUSY.writes;
            total.expected += if without > 0 && without % leave_after == 0 { 9_000 } else { 10_000 };
            if let Some(telling) = governor.judge(Nanos::from_millis(20 * poll), total) {
                changes.push((poll, telling));
            }
        }
        changes
    }

    #[test]
    fn sends_that_leave_their_patterns_soon_bring_the_hook_back_for_longer_each_time() {
        let patterns = Telling::Patterns;
        let expected =
            [(1, SENDS), (6, patterns), (8, SENDS), (18, patterns), (20, SENDS), (40, patterns), (42, SENDS)];
        assert_eq!(changes(2, 60), expected);
    }

    #[test]
    fn sends_that_leave_their_patterns_late_bring_the_hook_back_no_longer_than_before() {
        let patterns = Telling::Patterns;
        let expected = [(1, SENDS), (6, patterns), (17, SENDS), (22, patterns), (33, SENDS), (38, patterns)];
        assert_eq!(changes(11, 45), expected);
    }

    #[test]
    fn the_first_poll_without_the_hook_is_not_judged() {
        let mut governor = Governor::new(Nanos::ZERO, 2);
        let mut total = Counters::default();
        for poll in 1..20 {
            let first = poll == 7;
            total.operations += BUSY.operations;
            total.sockets += BUSY.sockets;
            total.writes += BUSY.writes;
            total.expected += if first { 6_000 } else { 10_000 };
            governor.judge(Nanos::from_millis(20 * poll), total);
        }
        assert_eq!(governor.telling, Telling::Patterns);
    }
}
