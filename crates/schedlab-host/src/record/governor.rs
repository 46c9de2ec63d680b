//! How much is told of operations that neither wait nor wake, so that recording costs the target little.
//!
//! Each return is told until that takes too much of the machine. Then sends are told by a hook in sockets, and
//! reads from the kernel's accounting, or by a hook where accounting does not tell them. When sends have
//! followed their tasks' patterns for a while, the hook goes, too: accounting tells how many there were. When
//! they leave their patterns it comes back, for longer each time. Decides from counters only;
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
/// Polls in a row that must be too dear.
const DEAR_POLLS: u32 = 2;
/// Polls in a row in which sends must follow their patterns before the hook goes, the first time.
const PATIENCE: u32 = 5;
/// The most such polls, after the hook had to come back again and again.
const PATIENCE_MAX: u32 = 1 << 12;
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
    cpus: usize,
}

impl Governor {
    /// Begins with every return told.
    pub(super) fn new(start: Nanos, cpus: usize) -> Governor {
        let (telling, counters) = (Telling::Returns, Counters::default());
        Governor { telling, time: start, counters, dear: 0, steady: 0, patience: PATIENCE, cpus }
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
            Telling::Patterns if expected(latest, EXPECTED_KEEP) => None,
            Telling::Patterns => {
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
                Some(Telling::Sends { receives: false })
            }
        };
        let next = next.filter(|next| *next != self.telling);
        self.telling = next.unwrap_or(self.telling);
        next
    }

    fn too_dear(&mut self, latest: Counters, available: u64) -> bool {
        let dear = latest.operations * RETURN_COST_NS * 100 > available * RETURN_SHARE_MAX
            && latest.sockets * 100 > latest.operations * SOCKET_SHARE_MIN;
        self.dear = if dear { self.dear + 1 } else { 0 };
        self.dear >= DEAR_POLLS
    }

    fn steady(&mut self, latest: Counters) -> bool {
        self.steady = if expected(latest, EXPECTED_BEGIN) { self.steady + 1 } else { 0 };
        let enough = self.steady >= self.patience;
        if enough {
            self.steady = 0;
        }
        enough
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

    #[test]
    fn sends_that_leave_their_patterns_bring_the_hook_back_for_longer_each_time() {
        let mut governor = Governor::new(Nanos::ZERO, 2);
        let mut total = Counters::default();
        let mut changes = Vec::new();
        for poll in 1..60 {
            let expected = if governor.telling == Telling::Patterns { 9_000 } else { 10_000 };
            total.operations += BUSY.operations;
            total.sockets += BUSY.sockets;
            total.writes += BUSY.writes;
            total.expected += expected;
            if let Some(telling) = governor.judge(Nanos::from_millis(20 * poll), total) {
                changes.push((poll, telling));
            }
        }
        let patterns = Telling::Patterns;
        let expected =
            [(2, SENDS), (7, patterns), (8, SENDS), (18, patterns), (19, SENDS), (39, patterns), (40, SENDS)];
        assert_eq!(changes, expected);
    }
}
