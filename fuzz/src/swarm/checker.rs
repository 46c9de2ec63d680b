//! Watches the events of a run for what must hold under every scheduler.

use schedlab_model::event::{Event, EventKind, EventSink, PrevState};
use schedlab_model::recording::TaskInfo;
use schedlab_model::workload::change::{CgroupSpec, CpuMax};
use schedlab_model::{CpuSet, Nanos, TaskId};
use schedlab_sim::SimulationResult;

/// Longest that a task may wait for a CPU of its own that is idle: covers a tick at HZ 100, after which an idle CPU is
/// kicked to balance, and another for the balancing to be due.
const IDLE_BESIDE_WAITING: Nanos = Nanos::from_millis(21);

/// What a CPU may run over a quota: two ticks at HZ 100, and a slice of 5 ms taken in advance.
const OVERRUN: Nanos = Nanos::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Runnable,
    Running,
    Sleeping,
    Dead,
}

#[derive(Clone, Debug)]
struct Task {
    state: State,
    since: Nanos,
    allowed: CpuSet,
    cpu_time: Nanos,
    run_delay: Nanos,
    switches: [u64; 2],
    cgroup: String,
    fair: bool,
    /// Longest that quotas may keep it from an idle CPU.
    throttled_max: Nanos,
}

/// The checks, and what they found first.
pub struct Checker {
    now: Nanos,
    tasks: Vec<Task>,
    current: Vec<TaskId>,
    idle_since: Vec<Nanos>,
    fixed_affinity: bool,
    conserves_work: bool,
    cgroups: Vec<CgroupSpec>,
    /// What was found first.
    pub broken: Option<String>,
}

impl Checker {
    /// A machine of so many idle CPUs; what is promised besides.
    /// `cgroups` are those whose quotas hold: none under a scheduler that does not know them.
    #[must_use]
    pub fn new(cpus: usize, fixed_affinity: bool, conserves_work: bool, cgroups: &[CgroupSpec]) -> Checker {
        Checker {
            now: Nanos::ZERO,
            tasks: Vec::new(),
            current: vec![TaskId::IDLE; cpus],
            idle_since: vec![Nanos::ZERO; cpus],
            fixed_affinity,
            conserves_work,
            cgroups: cgroups.to_vec(),
            broken: None,
        }
    }

    fn fail(&mut self, what: String) {
        let now = self.now;
        self.broken.get_or_insert_with(|| format!("at {now}: {what}"));
    }

    fn change(&mut self, task: TaskId, from: &[State], to: State, why: &str) {
        let now = self.now;
        let row = &mut self.tasks[task.index()];
        let was = row.state;
        match was {
            State::Running => row.cpu_time += now - row.since,
            State::Runnable => row.run_delay += now - row.since,
            _ => {}
        }
        (row.state, row.since) = (to, now);
        if !from.contains(&was) {
            self.fail(format!("{why}: task {} was {was:?}", task.0));
        }
    }

    fn switch(&mut self, cpu: usize, prev: TaskId, prev_state: PrevState, next: TaskId) {
        if self.current[cpu] != prev {
            self.fail(format!("cpu {cpu} switches from task {}, but runs {}", prev.0, self.current[cpu].0));
        }
        if prev.is_idle() == next.is_idle() && prev == next {
            self.fail(format!("cpu {cpu} switches from task {} to itself", prev.0));
        }
        if !prev.is_idle() {
            let to = match prev_state {
                PrevState::Runnable => State::Runnable,
                PrevState::Dead => State::Dead,
                _ => State::Sleeping,
            };
            self.change(prev, &[State::Running], to, "switched out");
            // The switch away from a task that ends counts as neither.
            if to != State::Dead {
                self.tasks[prev.index()].switches[usize::from(to == State::Runnable)] += 1;
            }
        }
        if !next.is_idle() {
            self.change(next, &[State::Runnable], State::Running, "switched in");
            let fits = self.tasks[next.index()].allowed.contains(schedlab_model::CpuId(cpu as u32));
            if self.fixed_affinity && !fits {
                self.fail(format!("task {} runs on cpu {cpu}, which it may not use", next.0));
            }
        } else {
            self.idle_since[cpu] = self.now;
        }
        self.current[cpu] = next;
    }

    /// No CPU idles for long beside a task that waits and may run there.
    fn check_conservation(&mut self) {
        let limit = IDLE_BESIDE_WAITING;
        for (task, row) in self.tasks.iter().enumerate().skip(1) {
            let limit = limit + row.throttled_max;
            if row.state != State::Runnable || self.now - row.since <= limit {
                continue;
            }
            let idles = |cpu: &usize| {
                self.current[*cpu].is_idle()
                    && self.now - self.idle_since[*cpu] > limit
                    && row.allowed.contains(schedlab_model::CpuId(*cpu as u32))
            };
            if let Some(cpu) = (0..self.current.len()).find(idles) {
                let what = format!("task {task} waits since {} and cpu {cpu} is idle", row.since);
                return self.fail(what);
            }
        }
    }

    /// Quotas of a task's group and of those above it.
    fn quotas(&self, path: &str) -> Vec<CpuMax> {
        let above = |spec: &&CgroupSpec| {
            path.strip_prefix(spec.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let limited = |max: &CpuMax| max.quota.is_some();
        self.cgroups.iter().filter(above).map(|spec| spec.settings.max).filter(limited).collect()
    }

    /// A quota overruns until the next tick on each CPU; what is over is missing later.
    fn throttled_max(&self, path: &str) -> Nanos {
        let cpus = self.current.len() as u64;
        let wait = |max: CpuMax| {
            let quota = max.quota.map_or(1, |quota| quota.0);
            max.period * (3 + cpus * OVERRUN.0 / quota)
        };
        self.quotas(path).into_iter().map(wait).fold(Nanos::ZERO, |sum, wait| sum + wait)
    }

    /// No group has run longer than its quota allows: whole periods, one begun at either end, what was saved up, and on
    /// each CPU a slice taken in advance and an overrun.
    fn check_quotas(&mut self) {
        for spec in self.cgroups.clone() {
            let max = spec.settings.max;
            let Some(quota) = max.quota else { continue };
            let below = |row: &&Task| {
                let rest = row.cgroup.strip_prefix(spec.path.as_str());
                row.fair && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let used: u64 = self.tasks.iter().skip(1).filter(below).map(|row| row.cpu_time.0).sum();
            let periods = self.now.0 / max.period.0 + 2;
            let cpus = self.current.len() as u64;
            let allowed = quota.0 * periods + max.burst.0 + cpus * OVERRUN.0;
            if used > allowed {
                let (used, allowed) = (Nanos(used), Nanos(allowed));
                self.fail(format!("{} has run {used}, its quota allows {allowed}", spec.path));
            }
        }
    }

    /// What the events add up to is what the run accounted.
    pub fn finish(&mut self, result: &SimulationResult) {
        self.now = result.report.simulated;
        self.check_quotas();
        for task in 1..self.tasks.len() {
            let state = self.tasks[task].state;
            self.change(TaskId(task as u32), &[state], state, "end");
            let (row, account) = (self.tasks[task].clone(), &result.accounts[task]);
            let counts = [account.voluntary_switches, account.involuntary_switches];
            if row.switches != counts {
                self.fail(format!("task {task}: {:?} switches seen, {counts:?} accounted", row.switches));
            }
            if (row.cpu_time, row.run_delay) != (account.cpu_time, account.run_delay) {
                let (cpu_time, run_delay) = (account.cpu_time, account.run_delay);
                self.fail(format!(
                    "task {task}: ran {} and waited {} seen, {cpu_time} and {run_delay} accounted",
                    row.cpu_time, row.run_delay
                ));
            }
        }
    }
}

impl EventSink for Checker {
    fn wants_detail(&self) -> bool {
        false
    }

    fn task(&mut self, task: TaskId, info: &TaskInfo) {
        let allowed = info.attributes.affinity;
        let row = Task {
            state: State::New,
            since: self.now,
            allowed,
            cpu_time: Nanos::ZERO,
            run_delay: Nanos::ZERO,
            switches: [0, 0],
            cgroup: info.attributes.cgroup.clone(),
            fair: !info.attributes.policy.is_realtime(),
            throttled_max: self.throttled_max(&info.attributes.cgroup),
        };
        while self.tasks.len() <= task.index() {
            self.tasks.push(row.clone());
        }
        self.tasks[task.index()] = row;
    }

    fn event(&mut self, event: &Event) {
        if event.time < self.now {
            self.fail(format!("time goes back to {}", event.time));
        }
        self.now = event.time;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event.cpu.index(), prev, prev_state, next);
                if self.conserves_work {
                    self.check_conservation();
                }
            }
            EventKind::Waking { wakee, .. } => {
                self.change(wakee, &[State::Sleeping], State::Runnable, "woken")
            }
            EventKind::WakeupNew { task, .. } => self.change(task, &[State::New], State::Runnable, "started"),
            _ => {}
        }
    }
}
