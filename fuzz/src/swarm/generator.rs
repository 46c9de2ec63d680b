//! Makes whole simulations at random: machine, kernel, scheduler, workload.

use crate::source::Source;
use schedlab_model::machine::{KernelVersion, MachineDescription, Preemption};
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec, Change, CpuMax, TimedChange};
use schedlab_model::workload::{Amount, ChannelType, Late, Op, TaskSpecId, TimerRef, Workload};
use schedlab_model::{ChannelId, CpuId, CpuSet, Nanos, Nice, Policy, TaskAttributes};

/// One simulation to be made.
pub struct Case {
    /// The machine and its kernel.
    pub machine: MachineDescription,
    /// The work.
    pub workload: Workload,
    /// `None` is the kernel's own class.
    pub object: Option<&'static str>,
    /// No task changes its CPUs.
    pub fixed_affinity: bool,
    /// Tasks use pipes.
    pub pipes: bool,
}

/// The case of a source.
pub fn case(dice: &mut Source) -> Case {
    let object = dice.percent(60).then(|| dice.pick(&["fifo", "vtime", "fixed_priority"]));
    let kernels: &[&str] = match object {
        Some(_) => &["6.12", "6.18", "7.2"],
        None => &["5.7", "6.1", "6.6", "6.12", "6.18", "7.2"],
    };
    let kernel: KernelVersion = dice.pick(kernels).parse().expect("a version");
    let topology = topology(dice);
    let mut machine = MachineDescription::generic("swarm", topology);
    machine.kernel = kernel;
    machine.hz = dice.pick(&[100, 250, 300, 1_000]);
    machine.preemption =
        dice.pick(&[Preemption::None, Preemption::Voluntary, Preemption::Full, Preemption::Lazy]);
    let fixed_affinity = dice.percent(70);
    let cpus = machine.topology.cpu_count() as u32;
    let pipes = dice.percent(60);
    let groups = if dice.percent(50) { dice.range(1, 5) } else { 0 };
    let workload = Tasks { dice, cpus, fixed_affinity, pipes, groups }.workload();
    Case { machine, workload, object, fixed_affinity, pipes }
}

fn topology(dice: &mut Source) -> Topology {
    if dice.percent(15) {
        // Big and little cores.
        let rows = (0..dice.range(2, 8) as u32).map(|core| CpuInfo {
            core,
            llc: 0,
            node: 0,
            capacity: if core % 2 == 0 { 1_024 } else { 512 },
        });
        return Topology::from_cpus(rows.collect()).expect("a topology");
    }
    let mut small = |most: u64| dice.range(1, most) as u32;
    Topology::uniform(small(2), small(2), small(4), small(2)).expect("a topology")
}

struct Tasks<'a> {
    dice: &'a mut Source,
    cpus: u32,
    fixed_affinity: bool,
    pipes: bool,
    /// How many of [`GROUPS`] tasks are in.
    groups: u64,
}

/// Paths of groups: siblings, one below another, a session.
const GROUPS: [&str; 5] = ["/a", "/b", "/a/x", "/a/x/y", "/autogroup-1"];

/// Channels that every task may use.
struct Channels {
    pipes: Vec<ChannelId>,
    mutexes: Vec<ChannelId>,
    condition: ChannelId,
    tokens: ChannelId,
}

impl Tasks<'_> {
    fn workload(&mut self) -> Workload {
        let mut builder = Builder::new("swarm", "made at random");
        let pipes = (0..self.dice.range(1, 3)).map(|n| {
            let (name, capacity) = (format!("pipe{n}"), self.dice.range(64, 65_536));
            if self.dice.one_in(2) {
                builder.socket(&name, capacity, 0)
            } else {
                builder.channel(&name, ChannelType::Bytes, capacity, 0)
            }
        });
        let pipes = pipes.collect();
        let mutexes = (0..2).map(|n| builder.channel(&format!("mutex{n}"), ChannelType::Mutex, 0, 0));
        let mutexes = mutexes.collect();
        let condition = builder.channel("condition", ChannelType::Condition, 0, 0);
        let tokens = builder.channel("tokens", ChannelType::Tokens, 0, self.dice.range(0, 3));
        let channels = Channels { pipes, mutexes, condition, tokens };
        let count = self.dice.range(1, 20);
        for task in 0..count {
            builder.declare(&format!("t{task}"), false);
        }
        let child = builder.declare("child", true);
        for task in 0..count {
            let ops = self.program(&channels, Some(child));
            let attributes = self.attributes();
            let row = builder.task(&format!("t{task}"), &format!("p{}", task % 3), attributes, ops);
            row.start = Nanos::from_micros(self.dice.range(0, 20_000));
        }
        let ops = vec![self.run(), Op::Sleep(self.time(1_000)), self.run()];
        builder.task("child", "p0", self.attributes(), ops).template = true;
        let duration = Nanos::from_millis(self.dice.range(20, 200));
        let mut workload = builder.finish(Some(duration)).expect("valid by construction");
        workload.cgroups = (0..self.groups).map(|group| self.cgroup(group as usize)).collect();
        for _ in 0..if self.groups > 0 { self.dice.range(0, 2) } else { 0 } {
            let time = Nanos::from_micros(self.dice.range(1, duration.0 / 1_000));
            // What an invariant counts on stays.
            let group = self.dice.range(0, self.groups - 1) as usize;
            let settings =
                CgroupSettings { max: workload.cgroups[group].settings.max, ..self.cgroup(group).settings };
            let spec = CgroupSpec { settings, ..workload.cgroups[group].clone() };
            workload.changes.push(TimedChange { time, change: Change::Cgroup(spec) });
        }
        workload.changes.sort_by_key(|change| change.time);
        workload
    }

    fn cgroup(&mut self, group: usize) -> CgroupSpec {
        let mut settings = CgroupSettings { idle: self.dice.percent(20), ..CgroupSettings::default() };
        settings.weight = self.dice.pick(&[1, 50, 100, 100, 1_000, 10_000]);
        if self.dice.percent(40) {
            let quota = Some(Nanos::from_micros(self.dice.range(1_000, 15_000)));
            let period = Nanos::from_millis(self.dice.range(1, 20));
            let burst = Nanos::from_millis(self.dice.pick(&[0, 0, 2]));
            settings.max = CpuMax { quota, period, burst };
        }
        CgroupSpec { path: GROUPS[group].to_owned(), settings }
    }

    fn time(&mut self, most_us: u64) -> Amount {
        let low = Nanos::from_micros(self.dice.range(1, most_us));
        match self.dice.range(0, 3) {
            0 => Amount::Uniform(low, low * 2),
            1 => Amount::Exponential(low),
            _ => Amount::Fixed(low),
        }
    }

    fn run(&mut self) -> Op {
        let most = self.dice.pick(&[50, 500, 8_000]);
        Op::Run(self.time(most))
    }

    fn attributes(&mut self) -> TaskAttributes {
        let policies = [Policy::Normal, Policy::Normal, Policy::Normal, Policy::Batch, Policy::Idle];
        let mut attributes =
            TaskAttributes { policy: self.dice.pick(&policies), ..TaskAttributes::default() };
        if self.dice.percent(8) {
            attributes.policy = self.dice.pick(&[Policy::Fifo, Policy::Rr]);
            attributes.rt_priority = self.dice.range(1, 99) as u8;
        }
        attributes.nice = Nice::new(self.dice.range(0, 39) as i64 - 20).expect("in range");
        if self.dice.percent(30) {
            attributes.affinity = self.cpu_set();
        }
        if self.groups > 0 && self.dice.percent(70) {
            attributes.cgroup = GROUPS[self.dice.range(0, self.groups - 1) as usize].to_owned();
        }
        if self.dice.percent(10) {
            attributes.slice = Some(Nanos::from_micros(self.dice.range(100, 100_000)));
        }
        attributes
    }

    fn cpu_set(&mut self) -> CpuSet {
        let mut set = CpuSet::single(CpuId(self.dice.range(0, u64::from(self.cpus) - 1) as u32));
        for cpu in 0..self.cpus {
            if self.dice.percent(30) {
                set.insert(CpuId(cpu));
            }
        }
        set
    }

    /// A loop for ever or a few rounds of random steps.
    fn program(&mut self, channels: &Channels, child: Option<TaskSpecId>) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.dice.percent(20) {
            ops.push(self.run());
        }
        let count = if self.dice.percent(70) { 0 } else { self.dice.range(1, 50) as u32 };
        ops.push(Op::LoopStart { count });
        ops.push(self.run());
        for _ in 0..self.dice.range(0, 6) {
            self.step(channels, child, &mut ops);
        }
        ops.push(Op::LoopEnd);
        ops
    }

    fn step(&mut self, channels: &Channels, child: Option<TaskSpecId>, ops: &mut Vec<Op>) {
        let pipe = self.dice.pick(&channels.pipes);
        let bytes = self.dice.range(1, 9_000) as u32;
        let timeout = Some(Nanos::from_micros(self.dice.range(1, 5_000)));
        let period = Nanos::from_micros(self.dice.range(100, 10_000));
        match self.dice.range(0, 15) {
            0..=1 => ops.push(self.run()),
            5..=7 if !self.pipes => ops.push(Op::Sleep(self.time(10_000))),
            2..=4 => ops.push(Op::Sleep(self.time(10_000))),
            5 => ops.push(Op::Send { channel: pipe, bytes }),
            6 => ops.push(Op::Receive { channel: pipe, bytes }),
            7 => ops.push(Op::WaitAny { channels: channels.pipes.clone().into(), timeout }),
            8 => ops.push(Op::Post { channel: channels.tokens, tokens: self.dice.range(1, 3) as u32 }),
            9 => ops.push(Op::Take { channel: channels.tokens, timeout }),
            10 => {
                let channel = self.dice.pick(&channels.mutexes);
                let within = self.run();
                ops.extend([Op::Lock { channel }, within, Op::Unlock { channel }]);
            }
            11 => {
                ops.push(Op::WakeWaiters { channel: channels.condition, count: self.dice.range(1, 5) as u32 })
            }
            12 => ops.push(Op::Take { channel: channels.condition, timeout }),
            13 => ops.push(match self.dice.range(0, 2) {
                0 => Op::Yield,
                1 => Op::Touch { bytes },
                _ => Op::Spin { time: period, piece: Nanos::from_micros(32) },
            }),
            14 => {
                let (deadline, from_start) = (period, self.dice.percent(50));
                ops.push(Op::Timer {
                    timer: TimerRef::Own(0),
                    from_start,
                    period,
                    deadline,
                    late: Late::Resync,
                });
            }
            _ => self.rare(child, ops),
        }
    }

    fn rare(&mut self, child: Option<TaskSpecId>, ops: &mut Vec<Op>) {
        match (self.dice.range(0, 2), child) {
            (0, Some(spec)) => ops.extend([Op::Fork { spec }, Op::WaitChildren]),
            (1, _) if !self.fixed_affinity => ops.push(Op::SetAttributes(Box::new(self.attributes()))),
            _ => ops.push(Op::Sleep(self.time(2_000))),
        }
    }
}
