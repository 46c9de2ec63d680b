//! Debian's kernels, fetched by suite and kept in a cache outside the tree.
//!
//! apt does the work (mirrors, signatures, proxies) with package lists of its own, so the system's lists and packages
//! stay as they are and no root is needed. A kernel is fetched once; `refresh` looks for a newer one. Not here: modules,
//! because what a test needs is built into the cloud kernels.

use super::{Error, cache_directory};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kernel line, named as users name it; which exact version that is depends on the suite's day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelName {
    /// CFS: bookworm's own.
    V6_1,
    /// EEVDF without sched_ext: bookworm's security suite.
    V6_12,
    /// EEVDF and sched_ext: sid.
    V7_2,
}

impl KernelName {
    /// `6.1`, `6.12` or `7.2`.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V6_1, Self::V6_12, Self::V7_2].into_iter().find(|kernel| kernel.name() == name)
    }

    /// The name that `parse` reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
        }
    }

    fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "bookworm-security",
            Self::V7_2 => "sid",
        }
    }

    fn archive(self) -> &'static str {
        if self == Self::V6_12 { "debian-security" } else { "debian" }
    }

    /// Whether it can load sched_ext schedulers.
    pub fn has_sched_ext(self) -> bool {
        self == Self::V7_2
    }
}

/// Which kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// One of Debian's, by its line.
    Named(KernelName),
    /// The one that runs, if its image is installed.
    Running,
    /// An image (`bzImage`, `vmlinuz`).
    File(PathBuf),
}

impl std::str::FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match KernelName::parse(text) {
            Some(name) => Ok(Self::Named(name)),
            None if text == "running" => Ok(Self::Running),
            None if text.contains('/') || Path::new(text).is_file() => Ok(Self::File(text.into())),
            None => Err("neither 6.1, 6.12, 7.2 or running, nor the file of a kernel image".to_owned()),
        }
    }
}

/// A kernel image on disk.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its release as `uname -r` says it.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
}

impl Kernel {
    /// The kernel that was chosen, fetched if it has to be.
    pub fn choose(choice: &KernelChoice) -> Result<Kernel, Error> {
        match choice {
            KernelChoice::Named(name) => Self::get(*name),
            KernelChoice::Running => {
                let release = crate::machine::kernel_release();
                let places = [format!("/boot/vmlinuz-{release}"), format!("/lib/modules/{release}/vmlinuz")];
                let image = places.iter().map(PathBuf::from).find(|path| path.is_file());
                image.map(|image| Kernel { release: release.clone(), image }).ok_or_else(|| Error::NoImage {
                    path: PathBuf::from(&places[0]),
                    why: "the running kernel's image is not installed".to_owned(),
                })
            }
            KernelChoice::File(path) => {
                let failed = |why: String| Error::NoImage { path: path.clone(), why };
                let beginning = beginning(path).map_err(|error| failed(error.to_string()))?;
                let release = release_in(&beginning)
                    .ok_or_else(|| failed("it is no bootable x86 image (bzImage, vmlinuz)".to_owned()))?;
                if !is_long_enough(path, &beginning) {
                    return Err(failed("its end is missing: copy it again".to_owned()));
                }
                Ok(Kernel { release, image: path.clone() })
            }
        }
    }

    /// The cached kernel of that line, fetched first if there is none.
    pub fn get(name: KernelName) -> Result<Kernel, Error> {
        let directory = cache_directory().join("kernels").join(name.name());
        cached(&directory).map_or_else(|| Self::fetch(name, &directory), Ok)
    }

    /// Fetches the suite's present kernel of that line even if one is cached.
    pub fn refresh(name: KernelName) -> Result<Kernel, Error> {
        Self::fetch(name, &cache_directory().join("kernels").join(name.name()))
    }

    fn fetch(name: KernelName, directory: &Path) -> Result<Kernel, Error> {
        let failed =
            |what: String| Error::Fetch { kernel: name.name().into(), what, cache: directory.to_path_buf() };
        fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
        let lock = File::create(directory.join("lock")).map_err(|error| failed(error.to_string()))?;
        lock.lock().map_err(|error| failed(error.to_string()))?;
        let before = cached(directory);
        let apt = Apt::new(name, directory).map_err(failed)?;
        apt.update().map_err(failed)?;
        let package = apt.newest_package().map_err(failed)?;
        let release = release_of(&package);
        if let Some(kernel) = before.filter(|kernel| kernel.release == release) {
            return Ok(kernel);
        }
        let place = directory.join(&release);
        if place.exists() {
            fs::remove_dir_all(&place).map_err(|error| failed(error.to_string()))?;
        }
        apt.download_image(&package, &place).map_err(failed)?;
        cached(directory).ok_or_else(|| failed("the image is not where it was put".into()))
    }
}

/// The newest complete kernel below `directory`.
fn cached(directory: &Path) -> Option<Kernel> {
    let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let releases = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // A damaged one is fetched anew.
    let whole = |release: &String| {
        let image = directory.join(release).join("vmlinuz");
        beginning(&image).is_ok_and(|bytes| release_in(&bytes).is_some() && is_long_enough(&image, &bytes))
    };
    let complete = releases.filter(whole);
    let release = complete.max_by_key(|release| version_key(release))?;
    Some(Kernel { image: directory.join(&release).join("vmlinuz"), release })
}

/// Where an image tells what it is.
fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(64 << 10).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The release that a bzImage tells of itself (Documentation/arch/x86/boot.rst: `kernel_version`).
fn release_in(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = 0x200 + usize::from(u16::from_le_bytes([*image.get(0x20E)?, *image.get(0x20F)?]));
    let text = image.get(at..)?.split(|byte| *byte == 0).next()?;
    let release = std::str::from_utf8(text).ok()?.split_whitespace().next()?;
    Some(release.to_owned())
}

/// Whether an image has as many bytes as it says: `setup_sects` sectors and one, then `syssize` times 16.
fn is_long_enough(path: &Path, beginning: &[u8]) -> bool {
    let Some(&[sectors, _, _, a, b, c, d]) = beginning.get(0x1F1..0x1F8).and_then(<[u8]>::first_chunk) else {
        return false;
    };
    // None means four, for the oldest loaders.
    let sectors = if sectors == 0 { 4 } else { u64::from(sectors) };
    let bytes = (sectors + 1) * 512 + u64::from(u32::from_le_bytes([a, b, c, d])) * 16;
    fs::metadata(path).is_ok_and(|data| data.len() >= bytes)
}

/// apt with lists, cache and sources of its own.
struct Apt {
    name: KernelName,
    directory: PathBuf,
}

impl Apt {
    fn new(name: KernelName, directory: &Path) -> Result<Self, String> {
        let directory = directory.join("apt");
        for below in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(below)).map_err(|error| error.to_string())?;
        }
        let source = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} {} main\n",
            mirror(name.archive()),
            name.suite()
        );
        fs::write(directory.join("sources.list"), source).map_err(|error| error.to_string())?;
        Ok(Self { name, directory })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let directory = self.directory.display();
        for option in [
            format!("Dir::Etc::SourceList={directory}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".into(),
            format!("Dir::State::Lists={directory}/lists"),
            "Dir::State::status=/dev/null".into(),
            format!("Dir::Cache={directory}/cache"),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::Retries=3".into(),
            // A mirror frozen at a date serves as well: signatures are checked all the same, and what it serves only
            // ever runs in a virtual machine.
            "Acquire::Check-Valid-Until=false".into(),
            "APT::Architecture=amd64".into(),
            "APT::Sandbox::User=root".into(),
            "Debug::NoLocking=true".into(),
        ] {
            command.args(["-o", &option]);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str], within: &Path) -> Result<String, String> {
        let output = self.command(program).args(arguments).current_dir(within).output();
        let output =
            output.map_err(|error| format!("{program}: {error} (fetching kernels needs Debian's apt)"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = text.lines().filter(|line| line.starts_with("E:") || line.starts_with("W:"));
        Err(format!("{program} {} failed: {}", arguments.join(" "), said.collect::<Vec<_>>().join("; ")))
    }

    fn update(&self) -> Result<(), String> {
        let errors = ["-o", "APT::Update::Error-Mode=any", "update", "-q"];
        self.run("apt-get", &errors, &self.directory).map(|_| ()).map_err(|what| {
            format!("{what} (is there a network, and is {} reachable?)", mirror(self.name.archive()))
        })
    }

    /// The package with the image: since 7.x `linux-binary-RELEASE`, before `linux-image-RELEASE`.
    fn newest_package(&self) -> Result<String, String> {
        let names = self.run("apt-cache", &["pkgnames", "linux-"], &self.directory)?;
        newest(names.lines(), self.name).ok_or_else(|| {
            format!(
                "suite {} has no cloud kernel any more that is at least {}",
                self.name.suite(),
                self.name.name()
            )
        })
    }

    /// Downloads `package` and moves its image to `to`, whole or not at all.
    fn download_image(&self, package: &str, to: &Path) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let scratch = tempfile::tempdir_in(&self.directory).map_err(text)?;
        self.run("apt-get", &["download", "-q", package], scratch.path())?;
        let files =
            fs::read_dir(scratch.path()).map_err(text)?.filter_map(Result::ok).map(|entry| entry.path());
        let archive =
            files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        let archive = archive.ok_or_else(|| format!("apt-get download {package} left no file"))?;
        let unpacked = scratch.path().join("unpacked");
        let status =
            Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked).status().map_err(text)?;
        if !status.success() {
            return Err(format!("dpkg-deb cannot unpack {}", archive.display()));
        }
        let image = find_image(&unpacked).ok_or_else(|| format!("{package} holds no vmlinuz"))?;
        let ready = scratch.path().join("ready");
        fs::create_dir(&ready).map_err(text)?;
        fs::rename(image, ready.join("vmlinuz")).map_err(text)?;
        fs::rename(&ready, to).map_err(text)
    }
}

/// The newest cloud kernel of the wanted line; in sid, where lines pass, of a later one if that line is gone.
fn newest<'a>(names: impl Iterator<Item = &'a str>, wanted: KernelName) -> Option<String> {
    let mut candidates: Vec<&str> = names.filter(|name| is_image(name)).collect();
    candidates.sort_by_key(|name| (version_key(&release_of(name)), name.starts_with("linux-binary-")));
    let prefix = format!("{}.", wanted.name());
    let of_line = candidates.iter().rev().find(|name| release_of(name).starts_with(&prefix));
    let later = candidates.last().filter(|name| {
        wanted.suite() == "sid" && version_key(&release_of(name)) > version_key(wanted.name())
    });
    of_line.or(later).map(|name| (*name).to_string())
}

fn is_image(package: &str) -> bool {
    let release = release_of(package);
    release != package
        && release.starts_with(|c: char| c.is_ascii_digit())
        && release.ends_with("-cloud-amd64")
}

/// `linux-binary-7.2.13+deb14-cloud-amd64` is of release `7.2.13+deb14-cloud-amd64`.
fn release_of(package: &str) -> String {
    let release = package.strip_prefix("linux-binary-").or_else(|| package.strip_prefix("linux-image-"));
    release.unwrap_or(package).to_string()
}

/// The numbers in a release, for comparison.
fn version_key(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The mirror that the system itself uses for `archive` (`debian` or `debian-security`), else the place beside the
/// other archive. A system without either gets a text that apt refuses and the error shows.
fn mirror(archive: &str) -> String {
    let known = Command::new("apt-get")
        .args(["indextargets", "Created-By: Packages", "--format", "$(REPO_URI)"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let of_archive = |uri: &&str| uri.trim_end_matches('/').ends_with(&format!("/{archive}"));
    let found = known.lines().find(of_archive).map(str::to_string);
    let main = known.lines().find_map(|uri| uri.trim_end_matches('/').strip_suffix("/debian"));
    let beside = || main.map(|host| format!("{host}/{archive}"));
    found.or_else(beside).unwrap_or_else(|| format!("no-mirror-of-{archive}-in-the-apt-sources"))
}

/// The first file called `vmlinuz` or `vmlinuz-RELEASE` below `directory`.
fn find_image(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    for entry in entries {
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if path.is_dir() && !is_link {
            if let Some(image) = find_image(&path) {
                return Some(image);
            }
        } else if entry.file_name().to_string_lossy().starts_with("vmlinuz") && !is_link {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &[
        "linux-image-cloud-amd64",
        "linux-image-7.2.9+deb14-cloud-amd64",
        "linux-binary-7.2.9+deb14-cloud-amd64",
        "linux-binary-7.2.13+deb14-cloud-amd64",
        "linux-image-7.2.13+deb14-cloud-amd64",
        "linux-binary-unsigned-7.2.13+deb14-cloud-amd64",
        "linux-binary-7.2.13+deb14-amd64",
        "linux-image-7.2.13+deb14-cloud-amd64-dbg",
        "linux-headers-7.2.13+deb14-cloud-amd64",
    ];

    #[test]
    fn the_newest_signed_cloud_image_is_chosen() {
        let chosen = newest(NAMES.iter().copied(), KernelName::V7_2);
        assert_eq!(chosen.as_deref(), Some("linux-binary-7.2.13+deb14-cloud-amd64"));
        assert_eq!(newest(NAMES.iter().copied(), KernelName::V6_12), None);
        let old = [
            "linux-image-6.12.9-cloud-amd64",
            "linux-image-6.12.10-cloud-amd64",
            "linux-image-6.1.0-9-cloud-amd64",
        ];
        let chosen = newest(old.into_iter(), KernelName::V6_12);
        assert_eq!(chosen.as_deref(), Some("linux-image-6.12.10-cloud-amd64"));
    }

    #[test]
    fn sid_may_have_moved_on_but_never_back() {
        let later = newest(["linux-binary-7.3.1+deb14-cloud-amd64"].into_iter(), KernelName::V7_2);
        assert_eq!(later.as_deref(), Some("linux-binary-7.3.1+deb14-cloud-amd64"));
        assert_eq!(newest(["linux-image-6.18.1-cloud-amd64"].into_iter(), KernelName::V7_2), None);
    }

    #[test]
    fn an_image_tells_its_release() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20E..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x312].copy_from_slice(b"6.18.4-own (me) #1");
        assert_eq!(release_in(&image).as_deref(), Some("6.18.4-own"));
        assert_eq!(release_in(&image[..0x208]), None);
        assert_eq!(release_in(&[0; 0x400]), None);
        assert_eq!("6.12".parse(), Ok(KernelChoice::Named(KernelName::V6_12)));
        assert_eq!("./bzImage".parse(), Ok(KernelChoice::File("./bzImage".into())));
        assert!("6.13".parse::<KernelChoice>().is_err());
    }

    #[test]
    fn an_image_whose_end_is_missing_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let release = directory.path().join("7.2.1");
        fs::create_dir(&release).expect("a directory");
        // One sector of set-up and the first, then 0x100 times 16 bytes.
        let mut image = vec![0; 1_024 + 0x1000];
        image[0x1F1] = 1;
        image[0x1F5] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20E..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x306].copy_from_slice(b"7.2.1 ");
        let path = release.join("vmlinuz");
        fs::write(&path, &image).expect("writes");
        assert_eq!(cached(directory.path()).expect("it is whole").release, "7.2.1");
        assert!(Kernel::choose(&KernelChoice::File(path.clone())).is_ok());
        fs::write(&path, &image[..image.len() - 1]).expect("writes");
        assert!(cached(directory.path()).is_none(), "it is fetched anew");
        let error = Kernel::choose(&KernelChoice::File(path)).expect_err("it does not boot").to_string();
        assert!(error.contains("its end is missing"), "{error}");
    }

    #[test]
    fn names_are_read_back() {
        for kernel in [KernelName::V6_1, KernelName::V6_12, KernelName::V7_2] {
            assert_eq!(KernelName::parse(kernel.name()), Some(kernel));
        }
        assert_eq!(KernelName::parse("7.1"), None);
    }
}
