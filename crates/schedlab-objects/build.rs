//! Compiles every bpf/**/*.bpf.c with clang and writes the table that src/lib.rs includes.
//!
//! Needs clang 16 or newer for 64-bit enumerators; `SCHEDLAB_CLANG` names another one than `clang-19` or
//! `clang`. libbpf's BPF-side headers come with the libbpf-sys crate.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Older ones drop the high half of 64-bit enumerators when they compile for BPF.
const CLANG_VERSION_MIN: u32 = 16;

const REMEDY: &str = "install it (Debian, Ubuntu: apt install clang-19) or name one with SCHEDLAB_CLANG";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=SCHEDLAB_CLANG");
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = manifest.join("../..").canonicalize()?;
    let bpf = root.join("bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let compiler = Compiler { clang: find_clang()?, root, out: out.clone() };
    let mut table = String::new();
    for (directory, constant, doc) in [
        ("schedulers", "SCHEDULERS", "Every scheduler of bpf/schedulers, by name."),
        ("tests", "TESTS", "Objects that exercise the loader and the engine, by name."),
        ("tests/conformance", "CONFORMANCE", "Schedulers that check what the kernel promises, by name."),
    ] {
        let entries = compiler.entries(&bpf.join(directory))?;
        write!(table, "/// {doc}\npub const {constant}: &[Object] = &[\n{entries}];\n\n")?;
    }
    for source in sources(&bpf)? {
        let name = stem(&source).to_uppercase();
        let object = compiler.compile(&source)?;
        write!(
            table,
            "/// The object of bpf/{}.bpf.c.\npub const {name}: &[u8] = include_bytes!({object:?});\n",
            stem(&source)
        )?;
    }
    fs::write(out.join("objects.rs"), table)?;
    Ok(())
}

/// `.bpf.c` files of one directory, sorted; none if it does not exist.
fn sources(directory: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".bpf.c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stem(source: &Path) -> String {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".bpf.c").to_string()
}

fn find_clang() -> Result<String, Box<dyn Error>> {
    let named = env::var("SCHEDLAB_CLANG").ok();
    let candidates = match &named {
        Some(clang) => vec![clang.as_str()],
        None => vec!["clang-19", "clang"],
    };
    let mut too_old = None;
    for clang in &candidates {
        let Ok(output) = Command::new(clang).arg("--version").output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.split("clang version ").nth(1).and_then(|t| t.split('.').next());
        let version = number.and_then(|n| n.parse::<u32>().ok());
        match version {
            Some(version) if version >= CLANG_VERSION_MIN => return Ok(clang.to_string()),
            Some(version) => too_old = Some(format!("{clang} is version {version}")),
            None => {}
        }
    }
    Err(match too_old {
        Some(found) => format!("{found}, but BPF needs clang {CLANG_VERSION_MIN} or newer: {REMEDY}").into(),
        None => format!("no clang found (tried {}): {REMEDY}", candidates.join(", ")).into(),
    })
}

struct Compiler {
    clang: String,
    root: PathBuf,
    out: PathBuf,
}

impl Compiler {
    fn entries(&self, directory: &Path) -> Result<String, Box<dyn Error>> {
        let mut entries = String::new();
        for source in sources(directory)? {
            let object = self.compile(&source)?;
            writeln!(
                entries,
                "    Object {{ name: {:?}, bytes: include_bytes!({object:?}), source: include_str!({source:?}) }},",
                stem(&source)
            )?;
        }
        Ok(entries)
    }

    fn compile(&self, source: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let object = self.out.join(format!("{}.bpf.o", stem(source)));
        let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
            "aarch64" => "arm64",
            "riscv64" => "riscv",
            _ => "x86",
        };
        let headers = env::var("DEP_BPF_INCLUDE")?;
        let output = Command::new(&self.clang)
            .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
            .arg(format!("-D__TARGET_ARCH_{arch}"))
            .arg(format!("-I{headers}"))
            // The same bytes wherever the sources lie.
            .arg(format!("-ffile-prefix-map={}=.", self.root.display()))
            .arg("-fdebug-compilation-dir=.")
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&object)
            .output()?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed on {}:\n{messages}", self.clang, source.display()).into());
        }
        Ok(object)
    }
}
