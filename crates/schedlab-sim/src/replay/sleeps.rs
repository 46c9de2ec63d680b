//! What going to sleep costs before the switch, by tasks that read the same again and again and wait for some reads only.
//!
//! A recorded burst before a sleep holds the way into it: off the run queue, and the choice of who is next. Where two
//! tasks hand bytes to and fro on one CPU, either of them may be the one that waits while the other is preempted, and it
//! changes as they run. A replay in which it changes elsewhere would charge the way to the wrong one.
//! Not here: costs of switches and wake-ups, which others show ([`super::calibrate`], [`super::readers`]).

use super::calibrate::SAMPLES_MIN;
use super::observe::{Observed, Step, TaskTrace};
use super::readers::median;
use schedlab_model::{ChannelId, Nanos};
use std::collections::BTreeMap;

/// More than this is work that depends on whether the task waits, not the sleep.
const SLEEP_MAX: Nanos = Nanos::from_micros(10);

/// Work from one read to the next, in ns of steps without their modelled costs.
#[derive(Default)]
struct Between {
    /// Neither of the two reads waited.
    at_once: Vec<u64>,
    /// Both did.
    slept: Vec<u64>,
}

/// What is alike from one read to the next: channel, bytes read, other operations between.
type Like = (ChannelId, u64, usize);

/// What a sleep costs; 0 where the recording does not show it.
pub(super) fn cost(observed: &Observed) -> Nanos {
    let (mut sum, mut samples) = (0_i128, 0_i128);
    for trace in &observed.tasks {
        for mut between in reads(observed, trace).into_values() {
            let count = between.at_once.len().min(between.slept.len());
            if count < SAMPLES_MIN {
                continue;
            }
            let count = count as i128;
            sum +=
                count * (i128::from(median(&mut between.slept)) - i128::from(median(&mut between.at_once)));
            samples += count;
        }
    }
    let each = if samples > 0 { sum / samples } else { 0 };
    u64::try_from(each).ok().map(Nanos).filter(|each| *each <= SLEEP_MAX).unwrap_or_default()
}

/// The work of a task between its reads.
fn reads(observed: &Observed, trace: &TaskTrace) -> BTreeMap<Like, Between> {
    let mut found: BTreeMap<Like, Between> = BTreeMap::new();
    // Since the last read: whether it waited, what was worked, other operations, sleeps that were not for a read.
    let (mut before, mut work, mut others, mut apart) = (None, 0, 0, false);
    for step in &trace.steps {
        match *step {
            Step::Run(ns) => work += ns,
            Step::Wake(_) => {}
            Step::Wait(wait) => apart |= observed.waits[wait as usize].transfer.is_none(),
            Step::Transfer(id) if !observed.transfers[id as usize].give => {
                let read = &observed.transfers[id as usize];
                let waits = read.waited.is_some();
                if before == Some(waits) && !apart {
                    let between = found.entry((read.channel, read.bytes, others)).or_default();
                    if waits { &mut between.slept } else { &mut between.at_once }.push(work);
                }
                (before, work, others, apart) = (Some(waits), 0, 0, false);
            }
            _ => others += 1,
        }
    }
    found
}
