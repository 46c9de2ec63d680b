//! `fidelity measure`: runs every load and pair of the plan, live and simulated, and keeps each one's numbers as JSON.
//!
//! Everything is done by the program as its users do it: `play`, `record`, `simulate`. What is measured is one file a
//! load or pair in the directory given, so that a measurement can be stopped and taken up again. Not judged here.

use crate::guest;
use crate::recorder::RecorderAtWork;
use anyhow::{Context, Result, bail, ensure};
use schedlab_model::machine::{Costs, MachineDescription};
use schedlab_model::recording::{Recording, codec};
use schedlab_model::workload;
use schedlab_report::fidelity::judge::{COSTS_SHOWN, undisturbed};
use schedlab_report::fidelity::measured::{
    LoadRuns, Numbers, PairRuns, Prediction, Session, Simulated, Source,
};
use schedlab_report::fidelity::plan::{Load, Pair, Plan};
use schedlab_report::result::Environment;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine file that the measurement begins with.
const MACHINE: &str = "machine.toml";
/// Live runs of a load, and the seeds it is simulated with.
const LOAD_RUNS: u64 = 4;
/// Live pairs.
const PAIR_RUNS: u64 = 6;
/// Seeds of a simulated workload file.
const FILE_SEEDS: u64 = 8;
/// Recordings that are replayed, and seeds of each.
const REPLAYED: usize = 3;
const REPLAY_SEEDS: u64 = 3;
/// What things cost is measured anew before a load or pair that begins so long after the last time: before all but the
/// first of them, since here it changes twofold within minutes.
const CALIBRATED_EVERY: Duration = Duration::from_secs(20);
/// A run that was disturbed by others is made again so often.
const AGAIN_MAX: u32 = 2;

/// What is asked for.
pub struct Options {
    /// Where results go.
    pub dir: PathBuf,
    /// Where the plan and the workload files are.
    pub plan: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Fewest repetitions.
    pub quick: bool,
    /// Leave out what is measured already.
    pub resume: bool,
    /// Simulate anew what was recorded before; nothing runs live.
    pub again: bool,
    /// Run live only: what is simulated is left to another call, with `again`.
    pub live_only: bool,
    /// Stop before the next load or pair after this long.
    pub budget: Option<Duration>,
    /// Only loads and pairs whose names contain one of these.
    pub only: Vec<String>,
    /// Pairs of virtual machines.
    pub vm: bool,
    /// Loads and pairs of this machine.
    pub host: bool,
}

impl Options {
    /// Whether an earlier measurement in the directory stays, with its session and machine: what is measured is added to
    /// it, or is a part of the plan.
    fn adds(&self) -> bool {
        let whole = self.host && self.vm && self.only.is_empty();
        !whole || self.resume || self.again
    }
}

/// Measures all that is planned and wanted.
pub fn run(options: Options) -> Result<ExitCode> {
    if !is_root() {
        eprintln!("fidelity: recording needs root: run it as root, e.g. with sudo");
        return Ok(ExitCode::from(3));
    }
    let plan = read_plan(&options.plan)?;
    std::fs::create_dir_all(&options.dir).with_context(|| options.dir.display().to_string())?;
    if !options.adds() {
        forget(&options.dir)?;
    }
    let runner = Runner::new(options)?;
    let began = Instant::now();
    let wanted = |name: &str| runner.wanted(name);
    let mut left = 0;
    let over = |left: &mut usize| {
        let over = runner.stopped() || runner.options.budget.is_some_and(|budget| began.elapsed() > budget);
        *left += usize::from(over);
        over
    };
    if runner.options.host {
        runner.session()?;
        for load in plan.loads.iter().filter(|load| wanted(&load.name)) {
            if !runner.is_done("load", &load.name) && !over(&mut left) {
                runner.load(load)?;
            }
        }
    }
    for pair in plan.pairs.iter().filter(|pair| wanted(&pair.name)) {
        let here = pair.kernel.is_empty();
        let asked = if here { runner.options.host } else { runner.options.vm };
        if asked && !runner.is_done("pair", &pair.name) && !over(&mut left) {
            if here { runner.pair(pair)? } else { guest::pair(&runner, pair)? }
        }
    }
    if runner.stopped() {
        eprintln!("fidelity: interrupted; what was measured is in {}", runner.options.dir.display());
        return Ok(ExitCode::from(130));
    }
    if left > 0 {
        eprintln!("fidelity: the time is up with {left} left to measure; go on with --continue");
    }
    let failed = runner.failed.load(Ordering::Relaxed);
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The plan.
pub fn read_plan(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// Removes what an earlier measurement left in the directory.
fn forget(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let name = name.to_string_lossy();
        let ours = ["load-", "pair-", "session", "machine"].iter().any(|begin| name.starts_with(begin));
        if ours && [".json", ".toml", ".slrec"].iter().any(|end| name.ends_with(end)) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Runs the program and keeps what it measured.
pub struct Runner {
    /// What is asked for.
    pub options: Options,
    interrupted: Arc<AtomicBool>,
    /// Something could not be measured.
    failed: AtomicBool,
    /// The latest machine file, and when it was measured.
    calibrated: Mutex<(String, Instant)>,
}

impl Runner {
    fn new(options: Options) -> Result<Runner> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let calibrated = Mutex::new((MACHINE.to_owned(), Instant::now()));
        Ok(Runner { options, interrupted, failed: AtomicBool::new(false), calibrated })
    }

    fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn wanted(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// So many, or few.
    pub fn count(&self, full: u64) -> u64 {
        if self.options.quick { full.min(2) } else { full }
    }

    /// A file of the measurement.
    pub fn path(&self, name: &str) -> PathBuf {
        self.options.dir.join(name)
    }

    /// A workload file of the plan.
    pub fn work(&self, name: &str) -> PathBuf {
        self.options.plan.with_file_name("loads").join(format!("{name}.toml"))
    }

    /// Whether there is nothing to do: it is measured already, or was not and nothing is to run live.
    fn is_done(&self, kind: &str, name: &str) -> bool {
        let measured = self.path(&format!("{kind}-{name}.json")).exists();
        if self.options.again { !measured } else { self.options.resume && measured }
    }

    /// Writes a result.
    pub fn keep<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        if self.stopped() {
            return Ok(());
        }
        let path = self.path(&format!("{name}.json"));
        std::fs::write(&path, serde_json::to_vec_pretty(value)?).with_context(|| path.display().to_string())
    }

    /// Runs the program. Its standard output is of no use here.
    pub fn schedlab(&self, arguments: &[String]) -> Result<()> {
        let mut command = Command::new(&self.options.program);
        command.arg("--quiet").args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.stderr(Stdio::piped()).output().context("the program does not start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let what = arguments.join(" ");
        ensure!(!self.stopped(), "interrupted");
        ensure!(output.status.success(), "schedlab {what}: {}", said.trim());
        Ok(())
    }

    /// The machine with what things cost on it, measured now, and where and when that was.
    fn session(&self) -> Result<()> {
        if self.options.adds() && self.path(MACHINE).exists() && self.path("session.json").exists() {
            return Ok(());
        }
        let machine = self.calibrate(MACHINE)?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.keep(
            "session",
            &Session {
                environment: Environment::of(&machine),
                release: release.trim().to_owned(),
                began_unix_s: now,
                program_version: env!("CARGO_PKG_VERSION").to_owned(),
                quick: self.options.quick,
                costs_ns: shown(&machine.costs),
                uncontended_ns: uncontended(&machine),
            },
        )
    }

    fn calibrate(&self, name: &str) -> Result<MachineDescription> {
        eprintln!("fidelity: calibrating");
        let file = self.path(name);
        self.schedlab(&words(&["machine", "--calibrate", "--output", &file.display().to_string()]))?;
        *self.calibrated() = (name.to_owned(), Instant::now());
        read_machine(&file)
    }

    fn calibrated(&self) -> MutexGuard<'_, (String, Instant)> {
        self.calibrated.lock().expect("nobody panics with it")
    }

    /// The machine file for what is measured now; where nothing runs live, the one that it had before.
    fn machine(&self, before: Option<String>) -> Result<String> {
        let (name, since) = self.calibrated().clone();
        if let Some(before) = before {
            return Ok(if before.is_empty() { MACHINE.to_owned() } else { before });
        }
        if since.elapsed() < CALIBRATED_EVERY {
            return Ok(name);
        }
        let count = (1..).find(|count| !self.path(&format!("machine-at-{count}.toml")).exists());
        let name = format!("machine-at-{}.toml", count.unwrap_or(1));
        let costs = uncontended(&self.calibrate(&name)?);
        let mut session: Session = read_json(&self.path("session.json"))?;
        session.uncontended_ns = session.uncontended_ns.max(costs);
        self.keep("session", &session)?;
        Ok(name)
    }

    fn load(&self, load: &Load) -> Result<()> {
        let began = Instant::now();
        let mut runs = LoadRuns { name: load.name.clone(), ..LoadRuns::default() };
        runs.problem = self.measure_load(load, &mut runs).err().map(|error| format!("{error:#}"));
        self.told(&load.name, began, runs.problem.as_deref());
        self.keep(&format!("load-{}", load.name), &runs)
    }

    fn measure_load(&self, load: &Load, runs: &mut LoadRuns) -> Result<()> {
        let work = self.work(&load.name).display().to_string();
        let count = self.count(LOAD_RUNS);
        let recordings: Vec<_> = (1..=count).map(|run| self.recording("load", &load.name, run)).collect();
        let before = self.before::<LoadRuns>("load", &load.name)?;
        runs.machine = self.machine(before.as_ref().map(|before| before.machine.clone()))?;
        if let Some(before) = before {
            runs.live = before.live;
        } else {
            for (run, file) in (1..).zip(&recordings) {
                runs.live.push(if load.command.is_empty() {
                    self.play(&work, &[], run, file)?
                } else {
                    self.record(&load.command, file)?
                });
            }
        }
        if self.options.live_only {
            return Ok(());
        }
        if load.command.is_empty() {
            let recorder = RecorderAtWork::beside(&recordings)?.steps();
            let seeds = 1..=self.count(FILE_SEEDS);
            let simulate = |seed| self.simulate(&work, &[], seed, &runs.machine, &recorder);
            let simulated = seeds.map(simulate).collect::<Result<_>>()?;
            runs.simulated.push(Simulated { source: Source::File, runs: simulated });
        }
        let mut replayed = Vec::new();
        for file in self.replayable(&recordings, &runs.live) {
            for seed in 1..=self.count(REPLAY_SEEDS) {
                replayed.push(self.replay(file, &[], seed, &runs.machine)?);
            }
        }
        runs.simulated.push(Simulated { source: Source::Recording, runs: replayed });
        Ok(())
    }

    /// Recordings of undisturbed runs, at most [`REPLAYED`].
    fn replayable<'a>(&self, recordings: &'a [PathBuf], live: &[Numbers]) -> Vec<&'a PathBuf> {
        let quiet = |numbers: &Numbers| undisturbed(std::slice::from_ref(numbers)).next().is_some();
        let quiet = recordings.iter().zip(live).filter(|(_, numbers)| quiet(numbers)).map(|(file, _)| file);
        quiet.take(if self.options.quick { 1 } else { REPLAYED }).collect()
    }

    fn pair(&self, pair: &Pair) -> Result<()> {
        let began = Instant::now();
        let mut runs = PairRuns { name: pair.name.clone(), ..PairRuns::default() };
        runs.problem = self.measure_pair(pair, &mut runs).err().map(|error| format!("{error:#}"));
        self.told(&pair.name, began, runs.problem.as_deref());
        self.keep(&format!("pair-{}", pair.name), &runs)
    }

    fn measure_pair(&self, pair: &Pair, runs: &mut PairRuns) -> Result<()> {
        let count = self.count(PAIR_RUNS);
        let before = self.before::<PairRuns>("pair", &pair.name)?;
        runs.machine = self.machine(before.as_ref().map(|before| before.machine.clone()))?;
        if let Some(before) = before {
            (runs.live_a, runs.live_b) = (before.live_a, before.live_b);
        } else {
            self.live_pairs(pair, count, runs)?;
        }
        if self.options.live_only {
            return Ok(());
        }
        if !pair.work.is_empty() {
            let [a, b] =
                [self.work(&pair.work), self.changed_work(pair)].map(|work| work.display().to_string());
            let [beside_a, beside_b] = self.recorders(pair, count)?;
            let mut of = Prediction { source: Source::File, ..Prediction::default() };
            for seed in 1..=self.count(FILE_SEEDS) {
                of.a.push(self.simulate(&a, &[], seed, &runs.machine, &beside_a)?);
                of.b.push(self.simulate(&b, &pair.set, seed, &runs.machine, &beside_b)?);
            }
            runs.predictions.push(of);
        }
        if pair.other.is_empty() {
            let mut of = Prediction { source: Source::Recording, ..Prediction::default() };
            let recordings: Vec<_> =
                (1..=count).map(|run| self.recordings(pair, run)).map(|[a, _]| a).collect();
            for file in self.replayable(&recordings, &runs.live_a) {
                for seed in 1..=self.count(REPLAY_SEEDS) {
                    of.a.push(self.replay(file, &[], seed, &runs.machine)?);
                    of.b.push(self.replay(file, &pair.set, seed, &runs.machine)?);
                }
            }
            runs.predictions.push(of);
        }
        Ok(())
    }

    fn live_pairs(&self, pair: &Pair, count: u64, runs: &mut PairRuns) -> Result<()> {
        for run in 1..=count {
            let [file, other] = self.recordings(pair, run);
            // A B, B A, A B: what changes slowly on the machine changes for both.
            let (a, b) = if run % 2 == 1 {
                let a = self.live(pair, false, run, &file)?;
                (a, self.live(pair, true, run, &other)?)
            } else {
                let b = self.live(pair, true, run, &other)?;
                (self.live(pair, false, run, &file)?, b)
            };
            runs.live_a.push(a);
            runs.live_b.push(b);
        }
        Ok(())
    }

    /// A live run's recording, which is kept beside the numbers.
    pub fn recording(&self, kind: &str, name: &str, run: u64) -> PathBuf {
        self.path(&format!("{kind}-{name}-{run}.slrec"))
    }

    /// Those of one live pair: of A, and of B.
    pub fn recordings(&self, pair: &Pair, run: u64) -> [PathBuf; 2] {
        [pair.name.clone(), format!("{}-changed", pair.name)].map(|name| self.recording("pair", &name, run))
    }

    /// What the recorder did beside A and beside B in so many runs, as steps of a workload file.
    pub fn recorders(&self, pair: &Pair, runs: u64) -> Result<[String; 2]> {
        let (a, b): (Vec<_>, Vec<_>) = (1..=runs).map(|run| self.recordings(pair, run).into()).unzip();
        Ok([RecorderAtWork::beside(&a)?.steps(), RecorderAtWork::beside(&b)?.steps()])
    }

    /// What was measured before, if it is to be simulated anew.
    pub fn before<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<Option<T>> {
        if !self.options.again {
            return Ok(None);
        }
        read_json(&self.path(&format!("{kind}-{name}.json"))).map(Some)
    }

    /// The workload file of the changed side.
    pub fn changed_work(&self, pair: &Pair) -> PathBuf {
        self.work(if pair.other.is_empty() { &pair.work } else { &pair.other })
    }

    fn live(&self, pair: &Pair, changed: bool, run: u64, file: &Path) -> Result<Numbers> {
        if pair.work.is_empty() {
            return self.record(if changed { &pair.changed } else { &pair.command }, file);
        }
        if changed {
            self.play(&self.changed_work(pair).display().to_string(), &pair.set, run, file)
        } else {
            self.play(&self.work(&pair.work).display().to_string(), &[], run, file)
        }
    }

    fn play(&self, work: &str, set: &[String], seed: u64, file: &Path) -> Result<Numbers> {
        let seed = seed.to_string();
        let mut arguments = words(&["play", work, "--seed", &seed, "--record", &file.display().to_string()]);
        for setting in set {
            arguments.extend(words(&["--set", setting]));
        }
        self.undisturbed(&arguments, file, &names(Path::new(work))?)
    }

    fn record(&self, command: &[String], file: &Path) -> Result<Numbers> {
        prepare(command, &self.options.dir)?;
        let dir = self.options.dir.display().to_string();
        let mut arguments = words(&["record", "--output", &file.display().to_string(), "--"]);
        arguments.extend(command.iter().map(|word| word.replace("{dir}", &dir)));
        self.undisturbed(&arguments, file, &BTreeSet::new())
    }

    /// Runs it, and again if others disturbed it.
    fn undisturbed(&self, arguments: &[String], file: &Path, own: &BTreeSet<String>) -> Result<Numbers> {
        let mut again = 0;
        loop {
            self.schedlab(arguments)?;
            let numbers = Numbers::of(&read_recording(file)?, own);
            again += 1;
            if again > AGAIN_MAX || undisturbed(std::slice::from_ref(&numbers)).next().is_some() {
                return Ok(numbers);
            }
        }
    }

    fn simulate(
        &self,
        work: &str,
        set: &[String],
        seed: u64,
        machine: &str,
        recorder: &str,
    ) -> Result<Numbers> {
        self.simulated(work, "fair", set, seed, &self.path(machine), recorder)
    }

    /// A simulated run of a recording, which has the recorder in it.
    fn replay(&self, recording: &Path, set: &[String], seed: u64, machine: &str) -> Result<Numbers> {
        self.simulate(&recording.display().to_string(), set, seed, machine, "")
    }

    /// One simulated run on a machine, on which the recorder takes these steps.
    pub fn simulated(
        &self,
        work: &str,
        scheduler: &str,
        set: &[String],
        seed: u64,
        machine: &Path,
        recorder: &str,
    ) -> Result<Numbers> {
        let file = self.path("simulated.slrec");
        let (seed, out) = (seed.to_string(), file.display().to_string());
        let machine = machine.display().to_string();
        let beside = work.ends_with(".toml").then(|| self.beside_recorder(work, recorder)).transpose()?;
        let work = beside.as_deref().unwrap_or(work);
        let mut arguments =
            words(&["simulate", work, "--machine", &machine, "--seed", &seed, "--record", &out]);
        arguments.extend(words(&["--scheduler", scheduler]));
        for setting in set {
            arguments.extend(words(&["--set", setting]));
        }
        self.schedlab(&arguments)?;
        let numbers = Numbers::of(&read_recording(&file)?, &BTreeSet::new());
        remove(&[file]);
        Ok(numbers)
    }

    /// The workload file with the recorder, which is at work beside it live. A recording has it.
    fn beside_recorder(&self, work: &str, steps: &str) -> Result<String> {
        let text = std::fs::read_to_string(work).with_context(|| work.to_owned())?;
        let recorder =
            format!("\n[[task]]\nname = \"recorder\"\ntarget = false\nnice = -20\nsteps = {steps}\n");
        let file = self.path("beside-recorder.toml");
        std::fs::write(&file, text + &recorder).with_context(|| file.display().to_string())?;
        Ok(file.display().to_string())
    }

    /// Says that it is done.
    pub fn told(&self, name: &str, began: Instant, problem: Option<&str>) {
        if problem.is_some() {
            self.failed.store(true, Ordering::Relaxed);
        }
        if !self.stopped() {
            let problem = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
            eprintln!("fidelity: {name} {:.1} s{problem}", began.elapsed().as_secs_f64());
        }
    }
}

/// Words as owned strings.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Names of a workload file's tasks.
pub fn names(work: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(work).with_context(|| work.display().to_string())?;
    let workload = workload::file::parse(&text).with_context(|| work.display().to_string())?;
    Ok(workload.tasks.into_iter().map(|task| task.name).collect())
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}

/// A machine file.
pub fn read_machine(path: &Path) -> Result<MachineDescription> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// A recording.
pub fn read_recording(path: &Path) -> Result<Recording> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    codec::decode(&bytes).with_context(|| path.display().to_string())
}

fn shown(costs: &Costs) -> BTreeMap<String, f64> {
    let named = costs.named();
    let shown = named.filter(|(name, _)| COSTS_SHOWN.contains(name));
    shown.map(|(name, cost)| (name.to_owned(), cost.value.0 as f64)).collect()
}

/// What 19 of 20 wake-ups by an interrupt took on a busy CPU; 0 if none was seen.
fn uncontended(machine: &MachineDescription) -> f64 {
    let seen = machine.calibration.as_ref().and_then(|of| of.seen.get("wake_by_interrupt_busy"));
    seen.map_or(0.0, |seen| seen.quantiles[5] as f64)
}

/// Files that are in nobody's way any more; one that is not there needs nothing.
fn remove(files: &[PathBuf]) {
    files.iter().for_each(|file| drop(std::fs::remove_file(file)));
}

/// What a command needs before it runs.
fn prepare(command: &[String], dir: &Path) -> Result<()> {
    let program = command.iter().find(|word| !is_wrapper(word)).map(String::as_str).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
        bail!("{program} is not installed");
    }
    if command.iter().any(|word| word == "{dir}/compile") {
        project(&dir.join("compile"))?;
    }
    Ok(())
}

/// `chrt` with its flags.
fn is_wrapper(word: &str) -> bool {
    word == "chrt" || word.starts_with("--") || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A small C project: ten files of functions that the compiler has to look at.
fn project(dir: &Path) -> Result<()> {
    if dir.join("Makefile").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(dir)?;
    let mut objects = String::new();
    for file in 0..10 {
        let mut source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for function in 0..8 {
            source += &format!(
                "int f{file}_{function}(int *a, int n) {{ int s = {function}; for (int i = 0; i < n; i++) \
                 for (int j = i; j < n; j++) if (a[i] > a[j]) {{ int t = a[i]; a[i] = a[j]; a[j] = t; s += t; }} \
                 else s ^= a[j] * {file}; return s; }}\n"
            );
        }
        std::fs::write(dir.join(format!("part{file}.c")), source)?;
        objects += &format!(" part{file}.o");
    }
    let makefile = format!("all:{objects}\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n");
    Ok(std::fs::write(dir.join("Makefile"), makefile)?)
}
