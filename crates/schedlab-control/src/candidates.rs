//! Which levers a comparison pulls by default, and how people write them.
//!
//! `NAME[:KEY=VALUE]...`: `fair`, `fair:policy=batch`, `fair:slice=100us`, `vtime:slice_ns=5000000`,
//! `./my.bpf.o`. `fair` is the kernel's own class. Keys `policy`, `nice`, `slice` and `rt_priority` set the
//! target's tasks, `weights` the weight table (`weights=group:2`); every other key is a knob of the scheduler or
//! kernel.

use schedlab_model::lever::{Candidate, Requirement, SchedulerChoice, Setting, Usability};
use schedlab_model::machine::KernelVersion;
use schedlab_model::time::Nanos;
use schedlab_model::weights::WeightTable;
use schedlab_model::{Nice, Policy};

/// A candidate that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CandidateError {
    /// No scheduler of that name.
    #[error("there is no scheduler '{name}'; known: fair, {known}, or the path of an object file")]
    UnknownScheduler {
        /// The name.
        name: String,
        /// The library's schedulers.
        known: String,
    },
    /// A setting that cannot be read.
    #[error("'{text}' in candidate '{candidate}': {problem}")]
    Setting {
        /// The whole candidate.
        candidate: String,
        /// The part.
        text: String,
        /// What is wrong, with what is right.
        problem: String,
    },
}

/// Reads one candidate; `library` names the schedulers that come with the product.
///
/// # Errors
/// [`CandidateError`] names what is known or right.
pub fn parse_candidate(text: &str, library: &[&str]) -> Result<Candidate, CandidateError> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let is_file = name.contains('/') || name.ends_with(".o");
    let scheduler = match name {
        "fair" | "eevdf" | "kernel" => SchedulerChoice::Kernel,
        name if is_file || library.contains(&name) => SchedulerChoice::Object(name.to_owned()),
        _ => {
            let (name, known) = (name.to_owned(), library.join(", "));
            return Err(CandidateError::UnknownScheduler { name, known });
        }
    };
    // A part without a key goes on with the one before: tables are written `weights=group:2:shrink`.
    let mut whole: Vec<String> = Vec::new();
    for part in parts {
        match whole.last_mut() {
            Some(before) if !part.contains('=') && before.starts_with("weights=") => {
                before.push(':');
                before.push_str(part);
            }
            _ => whole.push(part.to_owned()),
        }
    }
    let settings = whole
        .iter()
        .map(|part| {
            parse_setting(part).map_err(|problem| CandidateError::Setting {
                candidate: text.to_owned(),
                text: part.clone(),
                problem,
            })
        })
        .collect::<Result<Vec<Setting>, _>>()?;
    Ok(candidate(text, scheduler, settings))
}

/// Checks that the weight table of a candidate, Linux's if it has none, has the nice value that it sets.
///
/// # Errors
/// [`CandidateError::Setting`] names the range.
pub fn check_nice(candidate: &Candidate) -> Result<(), CandidateError> {
    let table = candidate.settings.iter().rev().find_map(|setting| match setting {
        Setting::Weights(table) => Some(table.clone()),
        _ => None,
    });
    let table = table.unwrap_or_default();
    let outside = |setting: &&Setting| matches!(setting, Setting::Nice(nice) if !table.has(*nice));
    let Some(Setting::Nice(nice)) = candidate.settings.iter().find(outside) else { return Ok(()) };
    let (strongest, weakest) = table.range();
    Err(CandidateError::Setting {
        candidate: candidate.name.clone(),
        text: format!("nice={}", nice.get()),
        problem: format!(
            "the weight table '{}' has nice {} (strongest) to {}; weights=refine:COUNT is wider",
            table.name(),
            strongest.get(),
            weakest.get()
        ),
    })
}

/// Reads `KEY=VALUE`; the error is what is wrong.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, e.g. slice=100us")?;
    Ok(match key {
        "policy" => Setting::Policy(parse_policy(value)?),
        "nice" => {
            let nice: i64 = value.parse().map_err(|_| "nice is a whole number, -20 to 19".to_owned())?;
            // Which of these there are is known once the weight table is.
            let widest =
                |error| format!("{error}, -32 to 31 with a wider weight table (weights=refine:COUNT)");
            Setting::Nice(Nice::widened(nice).map_err(widest)?)
        }
        "slice" => {
            let slice: Nanos = value.parse().map_err(|error| format!("{error}"))?;
            if !(Nanos::from_micros(100)..=Nanos::from_millis(100)).contains(&slice) {
                return Err(format!("slice {slice} is out of bounds: 100us to 100ms"));
            }
            Setting::Slice(slice)
        }
        "rt_priority" => {
            let priority = value.parse().ok().filter(|priority| (1..=99).contains(priority));
            Setting::RtPriority(priority.ok_or("rt_priority is 1 to 99")?)
        }
        "weights" => Setting::Weights(WeightTable::parse(value).map_err(|error| error.to_string())?),
        name => {
            let value = value.parse().map_err(|_| format!("knob {name} takes a whole number"))?;
            Setting::Knob { name: name.to_owned(), value }
        }
    })
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    Ok(match text {
        "normal" | "other" => Policy::Normal,
        "batch" => Policy::Batch,
        "idle" => Policy::Idle,
        "fifo" => Policy::Fifo,
        "rr" => Policy::Rr,
        _ => return Err("policy is normal, batch, idle, fifo or rr".to_owned()),
    })
}

fn candidate(name: &str, scheduler: SchedulerChoice, settings: Vec<Setting>) -> Candidate {
    let requirements = requirements(&scheduler, &settings);
    let usability = if requirements.is_empty() { Usability::UsableHere } else { Usability::Unknown };
    Candidate { name: name.to_owned(), scheduler, settings, requirements, usability }
}

/// What a scheduler with these settings needs of a machine.
pub fn requirements(scheduler: &SchedulerChoice, settings: &[Setting]) -> Vec<Requirement> {
    let mut requirements = Vec::new();
    let is_kernel = *scheduler == SchedulerChoice::Kernel;
    if matches!(scheduler, SchedulerChoice::Object(_)) {
        requirements.push(Requirement::SchedExt);
    }
    for setting in settings {
        match setting {
            Setting::Slice(_) => requirements.push(Requirement::Kernel(KernelVersion::V6_12)),
            Setting::Knob { .. } if is_kernel => requirements.push(Requirement::Debugfs),
            Setting::Weights(table) if is_kernel && table.weights() != WeightTable::linux().weights() => {
                requirements.push(Requirement::WeightTable);
            }
            Setting::Policy(policy) if policy.is_realtime() => requirements.push(Requirement::RaisePriority),
            Setting::Nice(nice) if nice.get() < 0 => requirements.push(Requirement::RaisePriority),
            _ => {}
        }
    }
    requirements
}

/// What a comparison tries when nobody says: the kernel's class as it is, as BATCH and with slices around its own
/// (granularities before custom slices came), and every scheduler of the library if the kernel can load it. The
/// baseline is first.
pub fn standard_candidates(library: &[&str], kernel: KernelVersion) -> Vec<Candidate> {
    let of_kernel: &[&str] = match (kernel.major, kernel.minor) {
        (0..=5, 0..13) => {
            &["fair:sched_min_granularity_ns=100000", "fair:sched_wakeup_granularity_ns=10000000"]
        }
        (0..=5, _) | (6, 0..6) => &["fair:min_granularity_ns=100000", "fair:wakeup_granularity_ns=10000000"],
        (6, 6..12) => &["fair:base_slice_ns=100000", "fair:base_slice_ns=20000000"],
        _ => &["fair:slice=100us", "fair:slice=6ms", "fair:slice=20ms"],
    };
    let library = if kernel >= KernelVersion::V6_12 { library } else { &[] };
    let names = ["fair", "fair:policy=batch"].iter().chain(of_kernel).chain(library);
    names
        .map(|name| parse_candidate(name, library).expect("the standard candidates are well-formed"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &[&str] = &["fifo", "vtime"];

    #[test]
    fn candidates_say_what_they_need() {
        let read = |text: &str| parse_candidate(text, LIBRARY).expect(text);
        assert_eq!(read("fair").usability, Usability::UsableHere);
        assert_eq!(read("fair:slice=100us").requirements, [Requirement::Kernel(KernelVersion::V6_12)]);
        assert_eq!(read("fair:base_slice_ns=3000000").requirements, [Requirement::Debugfs]);
        assert_eq!(read("vtime:slice_ns=5").requirements, [Requirement::SchedExt]);
        assert_eq!(read("fair:policy=fifo:rt_priority=3").requirements, [Requirement::RaisePriority]);
        assert_eq!(read("fair:weights=group:2:shrink").requirements, [Requirement::WeightTable]);
        assert!(read("fair:weights=linux").requirements.is_empty());
        assert_eq!(read("vtime:weights=group:2").requirements, [Requirement::SchedExt]);
        assert_eq!(read("./x.bpf.o").scheduler, SchedulerChoice::Object("./x.bpf.o".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let error = |text: &str| parse_candidate(text, LIBRARY).expect_err(text).to_string();
        assert!(error("vtim").contains("known: fair, fifo, vtime"));
        assert!(error("fair:slice=1s").contains("100us to 100ms"));
        assert!(error("fair:nice=40").contains("-20 (strongest) to 19, -32 to 31 with a wider weight table"));
        assert!(error("fair:weights=group:41").contains("1 to 40"));
        assert!(error("fair:policy").contains("KEY=VALUE"));
        assert!(error("fair:policy=fast").contains("normal, batch, idle, fifo or rr"));
    }

    #[test]
    fn a_nice_value_must_be_in_the_weight_table() {
        let check = |text: &str| check_nice(&parse_candidate(text, LIBRARY).expect(text));
        assert_eq!(check("fair:nice=19"), Ok(()));
        assert_eq!(check("fair:nice=29:weights=refine:60"), Ok(()));
        for (text, says) in [
            ("fair:nice=20", "'linux' has nice -20 (strongest) to 19"),
            ("fair:nice=30:weights=refine:60", "'refine:60' has nice -30 (strongest) to 29"),
            ("vtime:weights=group:5:shrink:nice=4", "'group:5:shrink' has nice -4 (strongest) to 3"),
        ] {
            let error = check(text).expect_err(text).to_string();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn the_standard_set_begins_with_the_baseline() {
        let set = standard_candidates(LIBRARY, KernelVersion::V6_18);
        assert_eq!(set[0], Candidate::baseline());
        assert_eq!(set.len(), 7);
    }
}
