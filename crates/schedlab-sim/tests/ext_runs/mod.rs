//! What the tests of the ext class share: run a workload file's text under a scheduler object.

use schedlab_bpf::image::ObjectImage;
use schedlab_model::Nanos;
use schedlab_model::event::EventSink;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{Costs, KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::change::{Change, TimedChange};
use schedlab_model::workload::file::parse;
use schedlab_sim::ext::{ExtOptions, ExtScheduler, SetUp, UserHalf, kernel_btf};
use schedlab_sim::{Attachable, Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// The object of a scheduler or of a test.
pub fn object(name: &str) -> &'static [u8] {
    schedlab_objects::scheduler(name).or_else(|| schedlab_objects::test_object(name)).expect("an object")
}

/// The same, loaded for a kernel.
pub fn image(name: &str, kernel: KernelVersion) -> ObjectImage {
    ObjectImage::load(object(name), name, &kernel_btf(kernel)).expect("an object")
}

/// A run to be made.
pub struct Run<'a> {
    pub scheduler: &'a str,
    pub workload: &'a str,
    pub topology: Topology,
    pub kernel: KernelVersion,
    pub knobs: &'a [(&'a str, i64)],
    pub interpreted: bool,
    /// The scheduler comes after a second, when the tasks run.
    pub late: bool,
    pub costs: Costs,
    /// Region, 0 for one that fits.
    pub memory_bytes_log2: u32,
    /// A program that the user half runs once the scheduler is attached.
    pub runs: Option<&'static str>,
}

/// A user half that runs one program of the object.
struct RunsProgram(usize);

impl SetUp for RunsProgram {
    fn run(&self, _user: &mut UserHalf<'_>) -> Result<(), String> {
        Ok(())
    }

    fn attached(&self, user: &mut UserHalf<'_>) -> Result<(), String> {
        user.run(self.0, &mut []).map(drop)
    }
}

impl<'a> Run<'a> {
    #[allow(dead_code, reason = "not every test binary asks")]
    /// On equal CPUs under one cache, Linux 7.2, nothing set.
    pub fn new(scheduler: &'a str, workload: &'a str, cpus: u32) -> Run<'a> {
        Run {
            scheduler,
            workload,
            topology: Topology::flat(cpus).expect("CPUs"),
            kernel: KernelVersion::V7_2,
            knobs: &[],
            interpreted: false,
            late: false,
            costs: Costs::default(),
            memory_bytes_log2: 0,
            runs: None,
        }
    }

    /// A simulation ready to run.
    pub fn simulation(&self) -> Simulation {
        Simulation::new(self.config()).expect("valid")
    }

    /// What it is to be made from.
    pub fn config(&self) -> SimulationConfig {
        let mut workload = parse(self.workload).expect("a workload");
        if self.late {
            let change = Change::Scheduler(Some(self.scheduler.to_owned()));
            workload.changes.push(TimedChange { time: Nanos::from_millis(1_000), change });
        }
        let options = ExtOptions {
            interpreted: self.interpreted,
            memory_bytes_log2: self.memory_bytes_log2,
            ..ExtOptions::default()
        };
        let image = image(self.scheduler, self.kernel);
        let program = self.runs.map(|name| {
            let found = image.programs.iter().position(|program| program.name == name);
            Arc::new(RunsProgram(found.expect("the program"))) as Arc<dyn SetUp>
        });
        let scheduler = ExtScheduler::with_set_up(image, self.kernel, &self.topology, options, program);
        let mut machine = MachineDescription::generic("test", self.topology.clone());
        machine.kernel = self.kernel;
        machine.costs = self.costs.clone();
        let mut config = SimulationConfig::new(machine, Arc::new(workload));
        let scheduler = scheduler.expect("the object loads");
        if self.late {
            let name = self.scheduler.to_owned();
            let knobs = self.knobs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            config.attachable.push(Attachable { name, scheduler, knobs });
        } else {
            config.scheduler = Scheduler::Ext(scheduler);
            let knob =
                |(name, value): &(&str, i64)| Setting::Knob { name: (*name).to_owned(), value: *value };
            config.settings = self.knobs.iter().map(knob).collect();
        }
        config
    }

    /// Runs it.
    #[allow(dead_code, reason = "not every test binary asks")]
    pub fn run(&self, sink: &mut impl EventSink) -> SimulationResult {
        self.simulation().run(sink).expect("runs")
    }
}

/// CPU time of each task in the order of the workload, in ns.
#[allow(dead_code, reason = "not every test binary asks")]
pub fn cpu_times(result: &SimulationResult) -> Vec<u64> {
    result.accounts[1..].iter().map(|account| account.cpu_time.0).collect()
}
