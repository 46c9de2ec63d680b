//! Lost switches: where a CPU's task changed without a switch being told, the time between is nobody's.
//!
//! Whoever was thought to run is taken off his CPU after the last event in which he was heard there, asleep: whether he
//! waited or slept is not known, and sleeping accuses no scheduler. Whoever turns out to run is put there when he is heard.

use crate::heard::{Heard, Named, What};
use schedlab_model::event::PrevState;
use std::collections::HashMap;

/// A CPU as far as events told.
#[derive(Clone, Copy, Default)]
struct Cpu {
    /// Who runs there; `None` before the first switch.
    running: Option<i32>,
    /// Whether the next switch there is his.
    confirmed: bool,
    /// Last event.
    heard: u64,
}

/// Puts the missing switches in; `events` are in time order, and stay so.
pub(crate) fn close(events: Vec<Heard>) -> Vec<Heard> {
    let confirmed = confirmed(&events);
    let mut closer = Closer { cpus: HashMap::new(), places: HashMap::new(), out: Vec::new(), closed: false };
    closer.out.reserve(events.len());
    for (event, confirmed) in events.into_iter().zip(confirmed) {
        closer.event(event, confirmed);
    }
    let Closer { mut out, closed, .. } = closer;
    if closed {
        out.sort_by_key(|heard| heard.time);
    }
    out
}

/// For each switch, whether the next one on its CPU is away from the task it was to.
fn confirmed(events: &[Heard]) -> Vec<bool> {
    let mut confirmed = vec![false; events.len()];
    let mut last: HashMap<u32, (usize, i32)> = HashMap::new();
    for (index, heard) in events.iter().enumerate() {
        if let What::Switch { prev, next, .. } = &heard.what
            && let Some((before, to)) = last.insert(heard.cpu, (index, next.pid))
        {
            confirmed[before] = to == prev.pid;
        }
    }
    confirmed
}

struct Closer {
    cpus: HashMap<u32, Cpu>,
    /// The CPU that each task runs on.
    places: HashMap<i32, u32>,
    out: Vec<Heard>,
    closed: bool,
}

impl Closer {
    fn event(&mut self, event: Heard, confirmed: bool) {
        let (time, at) = (event.time, event.cpu);
        match &event.what {
            What::Switch { prev, next, .. } => {
                self.runs_here(prev.pid, &event);
                self.leave_elsewhere(next.pid, at);
                if self.places.get(&prev.pid) == Some(&at) {
                    self.places.remove(&prev.pid);
                }
                self.places.insert(next.pid, at);
                let cpu = self.cpus.entry(at).or_default();
                (cpu.running, cpu.confirmed) = (Some(next.pid), confirmed);
            }
            // Told by whoever renames, at a time of his own.
            What::Rename { .. } => {}
            _ => self.runs_here(event.current, &event),
        }
        self.cpus.entry(at).or_default().heard = time;
        self.out.push(event);
    }

    /// The task runs on the event's CPU; if another was thought to, the gap is closed.
    fn runs_here(&mut self, pid: i32, event: &Heard) {
        let Cpu { running, heard, .. } = *self.cpus.entry(event.cpu).or_default();
        if running == Some(pid) {
            return;
        }
        self.leave_elsewhere(pid, event.cpu);
        let Some(running) = running else { return };
        self.put(event.cpu, running, 0, heard);
        self.put(event.cpu, 0, pid, event.time);
        if self.places.get(&running) == Some(&event.cpu) {
            self.places.remove(&running);
        }
        self.places.insert(pid, event.cpu);
        let cpu = self.cpus.entry(event.cpu).or_default();
        (cpu.running, cpu.confirmed) = (Some(pid), false);
    }

    /// A task that is heard here left the CPU it was thought on, unless that CPU's next switch is still his: then clocks
    /// of CPUs differ.
    fn leave_elsewhere(&mut self, pid: i32, here: u32) {
        let Some(&there) = self.places.get(&pid).filter(|&&there| there != here && pid > 0) else { return };
        let cpu = self.cpus.entry(there).or_default();
        if cpu.running == Some(pid) && !cpu.confirmed {
            cpu.running = Some(0);
            let heard = cpu.heard;
            self.put(there, pid, 0, heard);
            self.places.remove(&pid);
        }
    }

    fn put(&mut self, cpu: u32, from: i32, to: i32, time: u64) {
        if from == to {
            return;
        }
        self.closed = true;
        let named = |pid| Named { pid, ..Named::default() };
        let state = if from == 0 { PrevState::Runnable } else { PrevState::Interruptible };
        let what = What::Switch { prev: named(from), state, next: named(to) };
        self.out.push(Heard { time, cpu, current: from, flags: Default::default(), what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pid: i32) -> Named {
        Named { pid, ..Named::default() }
    }

    fn heard(time: u64, cpu: u32, current: i32, what: What) -> Heard {
        Heard { time, cpu, current, flags: Default::default(), what }
    }

    fn switch(time: u64, cpu: u32, prev: i32, next: i32) -> Heard {
        let what = What::Switch { prev: named(prev), state: PrevState::Runnable, next: named(next) };
        heard(time, cpu, prev, what)
    }

    fn switches(events: Vec<Heard>) -> Vec<(u64, u32, i32, i32)> {
        let told = close(events).into_iter().filter_map(|heard| match heard.what {
            What::Switch { prev, next, .. } => Some((heard.time, heard.cpu, prev.pid, next.pid)),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn whole_traces_stay_as_they_are() {
        let whole = vec![switch(1, 0, 0, 5), switch(2, 1, 0, 6), switch(3, 0, 5, 0), switch(4, 1, 6, 5)];
        assert_eq!(close(whole.clone()), whole);
        // The clock of CPU 1 is ahead: 5 is seen there before it left CPU 0.
        let skewed = vec![switch(1, 0, 0, 5), switch(2, 1, 0, 5), switch(3, 0, 5, 0)];
        assert_eq!(close(skewed.clone()), skewed);
    }

    #[test]
    fn a_task_that_another_leaves_for_ran_until_it_was_last_heard() {
        let irq = What::Irq { number: 1, enters: true };
        let lost = vec![switch(10, 0, 0, 5), heard(20, 0, 5, irq), switch(90, 0, 7, 0)];
        assert_eq!(switches(lost), [(10, 0, 0, 5), (20, 0, 5, 0), (90, 0, 0, 7), (90, 0, 7, 0)]);
    }

    #[test]
    fn who_wakes_others_runs() {
        let waking = What::Waking { wakee: named(9), cpu: None };
        let lost = vec![switch(10, 0, 0, 5), heard(50, 0, 7, waking), switch(90, 0, 7, 0)];
        assert_eq!(switches(lost), [(10, 0, 0, 5), (10, 0, 5, 0), (50, 0, 0, 7), (90, 0, 7, 0)]);
    }

    #[test]
    fn a_task_seen_on_another_cpu_left_the_one_it_was_on() {
        let lost = vec![switch(10, 0, 0, 5), switch(50, 1, 0, 5), switch(60, 1, 5, 0)];
        assert_eq!(switches(lost), [(10, 0, 0, 5), (10, 0, 5, 0), (50, 1, 0, 5), (60, 1, 5, 0)]);
    }
}
