//! Hands libFuzzer's inputs to the target that the environment names. `cargo xtask fuzz` builds and starts it.
//!
//! `SCHEDLAB_FUZZ_TARGET` is the target's name; `SCHEDLAB_FUZZ_PLANTED=1` plants its fault. With
//! `SCHEDLAB_FUZZ_SEEDS=DIRECTORY` the target's seeds (`seeds/seed-N`) and words (`words`, as libFuzzer wants them) are written
//! there, and that is all.

#![no_main]
#![allow(
    clippy::disallowed_methods,
    reason = "libFuzzer owns the command line, so that what to do comes from the environment"
)]

use schedlab_fuzz::{TARGETS, Target, target};
use std::path::Path;
use std::sync::OnceLock;

fn chosen() -> (&'static Target, bool) {
    let name = std::env::var("SCHEDLAB_FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let target = target(&name);
    let target = target.unwrap_or_else(|| panic!("SCHEDLAB_FUZZ_TARGET is one of {}", names.join(", ")));
    (target, std::env::var_os("SCHEDLAB_FUZZ_PLANTED").is_some())
}

fn write_seeds(target: &Target, directory: &Path) -> std::io::Result<()> {
    let words = target.words.iter().map(|word| format!("{word:?}\n").replace("\\n\"", "\\x0a\""));
    std::fs::write(directory.join("words"), words.collect::<String>())?;
    std::fs::create_dir_all(directory.join("seeds"))?;
    for (index, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(directory.join("seeds").join(format!("seed-{index}")), seed)?;
    }
    Ok(())
}

static CHOSEN: OnceLock<(&'static Target, bool)> = OnceLock::new();

fn begin() {
    let (target, _) = CHOSEN.get_or_init(chosen);
    if let Some(directory) = std::env::var_os("SCHEDLAB_FUZZ_SEEDS") {
        let written = write_seeds(target, Path::new(&directory));
        std::process::exit(i32::from(written.is_err()));
    }
}

libfuzzer_sys::fuzz_target!(init: begin(), |bytes: &[u8]| {
    let (target, planted) = CHOSEN.get_or_init(chosen);
    (target.run)(bytes, *planted);
});
