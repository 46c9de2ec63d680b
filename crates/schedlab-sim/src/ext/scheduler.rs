//! A scheduler object made ready for a machine: loaded and compiled once, attached to many simulations.

use super::attach;
use super::call::Op;
use super::class::Attached;
use super::host::{Host, OpsData};
use super::kernel::{Layout, kernel_btf};
use super::kfunc;
use super::setup::SetUp;
use crate::error::SimError;
use schedlab_bpf::exec::{Compiled, Options, PrivateStacks};
use schedlab_bpf::image::ObjectImage;
use schedlab_model::knob::Knob;
use schedlab_model::machine::KernelVersion;
use schedlab_model::topology::Topology;
use schedlab_model::weights::WeightTable;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Instructions one callback may execute: far beyond what the verifier lets pass, short enough to fail soon.
const BUDGET: u64 = 50_000_000;
/// The smallest region, as a power of two.
const REGION_LOG2_MIN: u32 = 24;
/// The largest region there is.
const REGION_LOG2_MAX: u32 = 31;
/// The largest that is reserved for tasks that forks may make: room for about a hundred thousand at once.
const REGION_LOG2_FORKS_MAX: u32 = 30;
/// Bytes of region a CPU's objects need, generously.
const BYTES_PER_CPU: u64 = 64 << 10;

/// Configuration of the simulated kernel that objects may read besides its version and size; `CONFIG_HZ` is
/// the machine's once a simulation begins.
const KCONFIG: &[(&str, u64)] = &[
    ("CONFIG_HZ", 250),
    ("CONFIG_SMP", 1),
    ("CONFIG_NUMA", 1),
    ("CONFIG_X86_64", 1),
    ("CONFIG_PREEMPT_RCU", 1),
    ("CONFIG_NO_HZ_IDLE", 1),
    ("CONFIG_SCHED_CLASS_EXT", 1),
    ("CONFIG_EXT_GROUP_SCHED", 1),
];

/// A loaded scheduler, for one kernel version and topology. Cheap to clone; threads may share it.
#[derive(Clone)]
pub struct ExtScheduler(Arc<Inner>);

struct Inner {
    name: String,
    version: KernelVersion,
    topology: Arc<Topology>,
    layout: Arc<Layout>,
    compiled: Compiled<Host>,
    programs: [Option<u32>; Op::COUNT],
    ops: OpsData,
    /// As prepared.
    options: ExtOptions,
    memory_bytes_log2: u32,
    set_up: Option<Arc<dyn SetUp>>,
    /// The same with larger regions, made when a simulation first needs one, for all that come after.
    larger: [OnceLock<Result<ExtScheduler, SimError>>; (REGION_LOG2_MAX - REGION_LOG2_MIN) as usize],
}

/// How to prepare a scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtOptions {
    /// Run by the interpreter instead of native code: slower, for tests.
    pub interpreted: bool,
    /// Region of an instance in bytes as a power of two, 0 for a size that fits the machine, the object's maps and
    /// the tasks of a workload.
    pub memory_bytes_log2: u32,
    /// No watchdog looks for tasks that wait too long, as in the kernels before sched_ext.
    pub no_watchdog: bool,
    /// Instructions that one callback may execute before it is taken to loop for ever; 0 for 50 million.
    pub instructions_max: u64,
}

impl ExtScheduler {
    /// Compiles an image that was loaded against [`kernel_btf`] of `version`.
    ///
    /// # Errors
    /// An object without a `struct sched_ext_ops`, or that cannot be compiled; the text names the remedy.
    pub fn new(
        image: ObjectImage,
        version: KernelVersion,
        topology: &Topology,
        options: ExtOptions,
    ) -> Result<ExtScheduler, SimError> {
        ExtScheduler::with_set_up(image, version, topology, options, None)
    }

    /// The same for an object with what its user half does before it attaches: each instance performs it.
    ///
    /// # Errors
    /// As for [`ExtScheduler::new`].
    pub fn with_set_up(
        mut image: ObjectImage,
        version: KernelVersion,
        topology: &Topology,
        options: ExtOptions,
        set_up: Option<Arc<dyn SetUp>>,
    ) -> Result<ExtScheduler, SimError> {
        set_kconfig(&mut image, version, topology);
        set_topology(&mut image, topology);
        let object = image.name.clone();
        let refuse = |reason: String| SimError::Scheduler { name: object.clone(), reason };
        let ops = image.struct_ops.iter().find(|ops| ops.type_name == "sched_ext_ops");
        let Some(ops) = ops else {
            let reason = "the object has no `struct sched_ext_ops`: it is not a scheduler".to_owned();
            return Err(refuse(reason));
        };
        if let Some(reason) = attach::sleeps_where_it_must_not(&image, ops) {
            return Err(refuse(reason));
        }
        let (programs, mut ops) = (attach::programs(ops), attach::ops_data(ops));
        ops.watchdog = !options.no_watchdog;
        let name = if ops.name.is_empty() { image.name.clone() } else { ops.name.clone() };
        let layout = Arc::new(Layout::of(&kernel_btf(version)));
        let nr_cpus = topology.cpu_count() as u32;
        let table = kfunc::table(&layout, nr_cpus, topology.nodes().len() as u32);
        let memory_bytes_log2 = match options.memory_bytes_log2 {
            0 => region_log2(&image, nr_cpus, 0, &layout),
            chosen => chosen,
        };
        let compile = Options {
            nr_cpus,
            memory_bytes_log2,
            budget: if options.instructions_max == 0 { BUDGET } else { options.instructions_max },
            native: !options.interpreted,
            refuse_absent: false,
            private_stacks: Some(private_stacks(version)),
            host_bytes: attach::percpu_stride(&layout) * u64::from(nr_cpus),
            symbols: attach::symbols(&layout),
            percpu_stride: attach::percpu_stride(&layout),
        };
        let compiled = Compiled::new(image, &table, compile).map_err(|error| refuse(error.to_string()))?;
        let topology = Arc::new(topology.clone());
        Ok(ExtScheduler(Arc::new(Inner {
            name,
            version,
            topology,
            layout,
            compiled,
            programs,
            ops,
            options,
            memory_bytes_log2,
            set_up,
            larger: Default::default(),
        })))
    }

    /// The same with a larger region if its own may be too small for so many tasks, and those that forks may make;
    /// itself if the size of its region was chosen. Made once, whichever simulation asks first.
    pub(crate) fn with_room(&self, tasks: u64, with_forks: u64) -> Result<ExtScheduler, SimError> {
        let inner = &*self.0;
        let nr_cpus = inner.topology.cpu_count() as u32;
        let region = |tasks| region_log2(self.image(), nr_cpus, tasks, &inner.layout);
        let memory_bytes_log2 = region(tasks).max(region(with_forks).min(REGION_LOG2_FORKS_MAX));
        if inner.options.memory_bytes_log2 != 0 || memory_bytes_log2 <= inner.memory_bytes_log2 {
            return Ok(self.clone());
        }
        let prepare = || {
            let options = ExtOptions { memory_bytes_log2, ..inner.options };
            let (image, set_up) = (self.image().clone(), inner.set_up.clone());
            ExtScheduler::with_set_up(image, inner.version, &inner.topology, options, set_up)
        };
        let larger = &inner.larger[(memory_bytes_log2 - REGION_LOG2_MIN - 1) as usize];
        larger.get_or_init(prepare).clone()
    }

    /// Helpers and kfuncs that programs of an object call and no simulated kernel of this version provides:
    /// program, instruction, callee.
    #[must_use]
    pub fn absent(image: &ObjectImage, version: KernelVersion) -> Vec<(String, u32, String)> {
        Compiled::<Host>::absent(image, &kfunc::table(&Layout::of(&kernel_btf(version)), 1, 1))
    }

    /// Loads an object file for a kernel version and compiles it.
    ///
    /// # Errors
    /// What the loader refuses, and all of [`ExtScheduler::new`].
    pub fn load(
        name: &str,
        bytes: &[u8],
        version: KernelVersion,
        topology: &Topology,
        options: ExtOptions,
    ) -> Result<ExtScheduler, SimError> {
        let image = ObjectImage::load(bytes, name, &kernel_btf(version))
            .map_err(|error| SimError::Scheduler { name: name.to_owned(), reason: error.to_string() })?;
        ExtScheduler::new(image, version, topology, options)
    }

    /// Settings the scheduler declares.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        let knob = |knob: schedlab_bpf::object::knobs::Knob| Knob {
            name: knob.name,
            unit: knob.unit,
            min: clamp(knob.min),
            max: clamp(knob.max),
            default: clamp(knob.value),
            live: knob.live,
            meaning: knob.meaning,
        };
        self.image().knobs().into_iter().map(knob).collect()
    }

    /// The settings that give the object a weight table.
    ///
    /// # Errors
    /// [`SimError::Setting`]: the object takes none.
    pub(crate) fn weight_knobs(&self, table: &WeightTable) -> Result<Vec<(String, i64)>, SimError> {
        if self.image().locate("weight_of_prio").is_err() {
            return Err(SimError::Setting {
                name: "weights".to_owned(),
                reason: format!("'{}' takes no weight table: fair, vtime and cfs do", self.name()),
            });
        }
        Ok(table.elements())
    }

    /// Name of the scheduler (`sched_ext_ops::name`, or the object's).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The kernel version it was prepared for.
    #[must_use]
    pub fn version(&self) -> KernelVersion {
        self.0.version
    }

    /// The image it was compiled from.
    #[must_use]
    pub fn image(&self) -> &ObjectImage {
        self.0.compiled.image()
    }

    /// What its user half does.
    pub(crate) fn set_up(&self) -> Option<Arc<dyn SetUp>> {
        self.0.set_up.clone()
    }

    /// Number of CPUs it was prepared for.
    pub(crate) fn cpu_count(&self) -> usize {
        self.0.topology.cpu_count()
    }

    /// A fresh copy for one simulation.
    pub(crate) fn attach(&self, seed: u64) -> Attached {
        let inner = &*self.0;
        let mut instance = inner.compiled.instance(seed);
        instance.set_interpreted(inner.options.interpreted);
        for (op, program) in inner.programs.iter().enumerate() {
            if let Some(program) = program {
                instance.bind(op, *program as usize);
            }
        }
        let host = attach::host(
            instance.memory(),
            (inner.version.major, inner.version.minor),
            Arc::clone(&inner.layout),
            Arc::clone(&inner.topology),
            inner.programs,
            inner.ops.clone(),
        );
        Attached::new(self.clone(), instance, host)
    }
}

/// Bytes of a region for an object's maps, the machine's CPUs and so many tasks, as a power of two, with some to spare.
fn region_log2(image: &ObjectImage, nr_cpus: u32, tasks: u64, layout: &Layout) -> u32 {
    let maps = Compiled::<Host>::map_bytes(image, nr_cpus, tasks);
    let others = (u64::from(nr_cpus) * BYTES_PER_CPU).saturating_add(maps);
    let needed = others.saturating_add(tasks.saturating_mul(attach::task_bytes(layout)));
    let whole = needed.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
    (whole + 1).clamp(REGION_LOG2_MIN, REGION_LOG2_MAX)
}

/// Which programs this kernel gives frames of their own, with `CONFIG_EXT_SUB_SCHED`, which distributions have.
fn private_stacks(version: KernelVersion) -> PrivateStacks {
    match (version.major, version.minor) {
        since if since >= (7, 1) => PrivateStacks::Dispatch,
        since if since >= (6, 13) => PrivateStacks::Tracing,
        _ => PrivateStacks::Nobody,
    }
}

/// Answers what the object asks of the kernel's configuration, unless a set-up did.
fn set_kconfig(image: &mut ObjectImage, version: KernelVersion, topology: &Topology) {
    let release = u64::from(version.major) << 16 | u64::from(version.minor) << 8;
    let size = [("LINUX_KERNEL_VERSION", release), ("CONFIG_NR_CPUS", topology.cpu_count() as u64)];
    for (option, value) in KCONFIG.iter().chain(&size) {
        let open = image.kconfig.iter().any(|wanted| wanted.name == *option && !wanted.set);
        if open {
            image.set_kconfig(option, *value);
        }
    }
}

/// Tells the object which CPUs share a cache, if it asks as bpf/include/placement.bpf.h does.
fn set_topology(image: &mut ObjectImage, topology: &Topology) {
    let Ok(llcs) = image.locate("llc_of_cpu") else { return };
    let Ok(count) = image.locate("llc_count") else { return };
    for (cpu, info) in topology.cpus().iter().enumerate().take(llcs.size as usize) {
        image.maps[llcs.map].initial[llcs.offset as usize + cpu] = info.llc as u8;
    }
    let number = topology.llcs().len() as i128;
    let written = count.write(&mut image.maps[count.map].initial, number);
    debug_assert!(written, "a 32-bit variable holds the number of caches");
}

fn clamp(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

impl fmt::Debug for ExtScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtScheduler").field("name", &self.0.name).field("version", &self.0.version).finish()
    }
}
