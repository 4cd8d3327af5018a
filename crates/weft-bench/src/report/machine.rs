//! [`Machine`]: where the points were measured, read from `/proc` and `/sys`. Whatever cannot be read
//! is reported as unknown; detection never fails, for a report without a kernel version is still one.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The machine, as shown at the head of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// CPU model name.
    pub cpu: String,
    /// Physical cores.
    pub cores: u32,
    /// Hardware threads.
    pub hardware_threads: u32,
    /// Hardware threads that this process may use (affinity and container limits).
    pub usable_threads: u32,
    /// Main memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Source of the mount that holds the data, such as `/dev/nvme0n1p2`.
    pub device: String,
    /// Model names of the disks behind the device, empty if the kernel does not tell.
    pub device_model: String,
    /// File system of the data.
    pub file_system: String,
    /// When the points were measured; the caller sets it, [`Machine::detect`] leaves it empty.
    pub date: String,
}

impl Machine {
    /// Describes this machine and where the data lies: `places` are directories (or their nearest
    /// existing parents), files and block devices.
    pub fn detect(places: &[PathBuf]) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cpu, cores, hardware_threads) = parse_cpuinfo(&read("/proc/cpuinfo"));
        let mounts = read("/proc/self/mountinfo");
        let mounts: Vec<Mount> =
            places.iter().filter_map(|place| storage(place, &mounts)).collect();
        let models = mounts.iter().map(|mount| device_model(&mount.source));
        let usable = std::thread::available_parallelism().map_or(0, |threads| threads.get() as u32);
        Machine {
            cpu,
            cores,
            hardware_threads,
            usable_threads: usable,
            memory_bytes: parse_memory_bytes(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            device_model: listed(models),
            device: listed(mounts.iter().map(|mount| mount.source.clone())),
            file_system: listed(mounts.iter().map(|mount| mount.file_system.clone())),
            date: String::new(),
        }
    }

    /// The description as (name, value) rows, unknown values left out.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut cores = format!("{} cores, {} hardware threads", self.cores, self.hardware_threads);
        if self.usable_threads != 0 && self.usable_threads != self.hardware_threads {
            cores.push_str(&format!(" ({} usable)", self.usable_threads));
        }
        let memory = super::units::bytes(self.memory_bytes);
        let known = |known: bool, text: String| if known { text } else { String::new() };
        let mut device = self.device.clone();
        if !self.device_model.is_empty() {
            device = format!("{device} ({})", self.device_model);
        }
        let rows = [
            ("CPU", self.cpu.clone()),
            ("Cores", known(self.cores > 0, cores)),
            ("Memory", known(self.memory_bytes > 0, memory)),
            ("Kernel", self.kernel.clone()),
            ("Data device", device),
            ("File system", self.file_system.clone()),
            ("Measured", self.date.clone()),
        ];
        rows.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// CPU model, physical cores and hardware threads from the text of `/proc/cpuinfo`.
fn parse_cpuinfo(text: &str) -> (String, u32, u32) {
    let mut model = String::new();
    let mut threads = 0;
    let mut cores = HashSet::new();
    let mut package = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "processor" => threads += 1,
            "model name" | "Model" | "cpu model" if model.is_empty() => model = value.to_string(),
            "physical id" => package = value.to_string(),
            "core id" => {
                cores.insert((package.clone(), value.to_string()));
            }
            _ => {}
        }
    }
    if model.is_empty() && threads > 0 {
        model = format!("unnamed {} CPU", std::env::consts::ARCH);
    }
    let cores = if cores.is_empty() { threads } else { cores.len() as u32 };
    (model, cores, threads)
}

/// `MemTotal` of the text of `/proc/meminfo`, bytes; 0 if it is not there.
fn parse_memory_bytes(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[derive(Debug, Default, PartialEq)]
struct Mount {
    source: String,
    file_system: String,
}

/// The mount that `dir` (absolute) lies on, from the text of `/proc/self/mountinfo`: the longest mount
/// point that is a prefix of it, and of several on one point the last, which hides the others.
fn find_mount(mountinfo: &str, dir: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split_whitespace().nth(4).map(unescape) else { continue };
        let mut fields = right.split_whitespace();
        let (Some(file_system), Some(source)) = (fields.next(), fields.next()) else { continue };
        let length = Path::new(&point).components().count();
        if dir.starts_with(&point) && best.as_ref().is_none_or(|(longest, _)| length >= *longest) {
            let mount = Mount { source: unescape(source), file_system: file_system.to_string() };
            best = Some((length, mount));
        }
    }
    best.map(|(_, mount)| mount)
}

/// Undoes the octal escapes of space, tab, newline and backslash in a mount table.
fn unescape(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_string(), |text, (escape, plain)| text.replace(escape, plain))
}

/// What a directory, file or block device lies on.
fn storage(place: &Path, mountinfo: &str) -> Option<Mount> {
    if fs::metadata(place).is_ok_and(|found| found.file_type().is_block_device()) {
        return Some(Mount { source: place.display().to_string(), file_system: String::new() });
    }
    find_mount(mountinfo, &existing_parent(place)?)
}

/// Distinct names in a row, without those not known.
fn listed(names: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct.join(" and ")
}

fn existing_parent(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())
}

/// Models of the disks behind a device node, looked up through partitions and RAID or mapped volumes:
/// `SAMSUNG PM9A3`, or `8 x SAMSUNG PM9A3`. Empty if unknown.
fn device_model(source: &str) -> String {
    let Ok(node) = Path::new(source).canonicalize() else { return String::new() };
    let Some(name) = node.file_name().filter(|_| node.starts_with("/dev")) else {
        return String::new();
    };
    let mut models: Vec<(String, usize)> = Vec::new();
    collect_models(&Path::new("/sys/class/block").join(name), 3, &mut models);
    let named =
        models.into_iter().map(|(model, n)| if n == 1 { model } else { format!("{n} x {model}") });
    named.collect::<Vec<_>>().join(", ")
}

fn collect_models(block: &Path, levels: u32, models: &mut Vec<(String, usize)>) {
    let Ok(block) = block.canonicalize() else { return };
    let parent = block.join("..");
    for file in [block.join("device/model"), parent.join("device/model")] {
        let Ok(model) = fs::read_to_string(file) else { continue };
        let model = model.trim().to_string();
        match models.iter_mut().find(|(known, _)| *known == model) {
            Some((_, n)) => *n += 1,
            None => models.push((model, 1)),
        }
        return;
    }
    if levels > 0 {
        for member in fs::read_dir(block.join("slaves")).into_iter().flatten().flatten() {
            collect_models(&member.path(), levels - 1, models);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_counts_cores_and_threads() {
        let one = |processor, core| {
            format!(
                "processor : {processor}\nmodel name : AMD EPYC\nphysical id : 0\ncore id : {core}\n\n"
            )
        };
        let text = [one(0, 0), one(1, 1), one(2, 0), one(3, 1)].concat();
        assert_eq!(parse_cpuinfo(&text), ("AMD EPYC".to_string(), 2, 4));
        assert_eq!(parse_cpuinfo(""), (String::new(), 0, 0));
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(parse_memory_bytes("MemTotal:       1024 kB\nMemFree: 3 kB\n"), 1 << 20);
        assert_eq!(parse_memory_bytes("nothing"), 0);
    }

    #[test]
    fn the_longest_last_mount_wins() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 8:2 / /data rw shared:1 - xfs /dev/nvme0n1 rw\n\
            3 1 8:3 / /data\\040two rw - btrfs /dev/nvme1n1 rw\n\
            4 2 8:4 / /data rw - f2fs /dev/nvme2n1 rw\n";
        let source = |dir: &str| find_mount(table, Path::new(dir)).unwrap().source;
        assert_eq!(source("/home"), "/dev/sda1");
        assert_eq!(source("/data/x"), "/dev/nvme2n1");
        assert_eq!(source("/data two/x"), "/dev/nvme1n1");
        assert_eq!(source("/database"), "/dev/sda1");
        assert_eq!(find_mount("", Path::new("/")), None);
    }

    #[test]
    fn detection_never_fails() {
        let machine = Machine::detect(&[PathBuf::from("no/such/directory/anywhere")]);
        assert!(machine.date.is_empty());
        assert!(machine.rows().iter().all(|(_, value)| !value.is_empty()));
    }
}
