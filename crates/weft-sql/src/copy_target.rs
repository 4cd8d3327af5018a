//! What COPY TO writes to: a file, which appears under its name when it is whole, a directory of files, or a pipe or device,
//! which gets the bytes of a file that is whole.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use url::Url;

use crate::copy_options::Before;
use crate::error::{ErrorKind, Result, SqlError};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// How many symbolic links lead to a file, at most.
const LINKS_MAX: usize = 40;

/// How long to wait before looking again whether a pipe has a reader.
const READER_PAUSE: Duration = Duration::from_millis(10);

/// The system's flag of an open that does not wait for a pipe's other end: that of Linux.
const O_NONBLOCK: i32 = 0o4000;

/// What becomes of the file that was written.
#[derive(Debug)]
enum Place {
    /// It gets this name, and the mode of the file that has it now.
    File { mode: Option<fs::Permissions> },
    /// A directory: it gets this name, or its files go into the one that has it.
    Directory { before: Before },
    /// Its bytes go there.
    Pipe,
}

/// A file or directory under a temporary name. It is removed unless it is finished.
#[derive(Debug)]
pub(crate) struct CopyTarget {
    /// A directory of its own. The writer's threads may go on after a statement was cancelled: what they still rename is gone with it.
    room: PathBuf,
    /// What is written: the directory itself, or a file in it.
    partial: PathBuf,
    target: PathBuf,
    place: Place,
}

impl CopyTarget {
    /// The target of this name, whose parts are directories if `is_directory`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it is nothing that can be written to, or its directory is missing.
    pub(crate) fn new(name: PathBuf, is_directory: bool, before: Before) -> Result<CopyTarget> {
        let cannot = |problem: &str| cannot_write(&name, &problem);
        let target = behind_links(&name).map_err(|error| cannot(&error.to_string()))?;
        let Some(file_name) = target.file_name() else {
            return Err(cannot("it is no name of a file"));
        };
        let place = match (fs::metadata(&target), is_directory) {
            (Ok(found), true) if !found.is_dir() => {
                return Err(cannot("it is a file, and a directory is to be written"));
            }
            (found, true) => {
                let is_full = found.is_ok() && !is_empty_directory(&target);
                if is_full && before == Before::Refuse {
                    return Err(cannot("the directory is not empty").with_hint(NOT_EMPTY));
                }
                Place::Directory { before }
            }
            (Ok(found), false) if found.is_dir() => return Err(cannot("it is a directory")),
            (Ok(_), false) if is_descriptor(&target) => Place::Pipe,
            (Ok(found), false) => {
                let kind = found.file_type();
                match (kind.is_file(), kind.is_fifo() || kind.is_char_device()) {
                    (true, _) => Place::File { mode: Some(found.permissions()) },
                    (_, true) => Place::Pipe,
                    _ => return Err(cannot("it is neither a file nor a pipe")),
                }
            }
            (Err(_), false) => Place::File { mode: None },
        };
        let directory = match (&place, target.parent()) {
            (Place::Pipe, _) => std::env::temp_dir(),
            (_, Some(parent)) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let directory = fs::canonicalize(directory)
            .map_err(|error| cannot(&format!("its directory: {error}")))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let room = directory.join(format!(".weft-{}-{number}.partial", std::process::id()));
        fs::create_dir(&room).map_err(|error| cannot(&error.to_string()))?;
        let partial = match place {
            Place::Directory { .. } => room.clone(),
            // With an extension, or it would be taken for a directory.
            _ => room.join("rows.partial"),
        };
        let target = match place {
            Place::Pipe => target,
            _ => directory.join(file_name),
        };
        let made = CopyTarget { room, partial, target, place };
        if made.partial != made.room {
            fs::write(&made.partial, b"").map_err(|error| cannot(&error.to_string()))?;
        }
        Ok(made)
    }

    /// Where to write, as a URL: in a path, some characters would make a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the path has no URL.
    pub(crate) fn url(&self) -> Result<String> {
        let url = match self.place {
            Place::Directory { .. } => Url::from_directory_path(&self.partial),
            _ => Url::from_file_path(&self.partial),
        };
        let url = url.map_err(|()| cannot_write(&self.target, &"it is no path of a file"))?;
        Ok(url.to_string())
    }

    /// Makes what was written durable and gives it its name, or writes it to the pipe.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if that fails.
    pub(crate) async fn finish(self) -> Result<()> {
        let finished = match &self.place {
            Place::File { mode } => self.rename_file(mode.as_ref()),
            Place::Directory { before } => self.rename_directory(*before),
            Place::Pipe => self.send().await,
        };
        finished.map_err(|error| cannot_write(&self.target, &error))
    }

    fn rename_file(&self, mode: Option<&fs::Permissions>) -> io::Result<()> {
        if let Some(mode) = mode {
            fs::set_permissions(&self.partial, mode.clone())?;
        }
        File::open(&self.partial)?.sync_all()?;
        fs::rename(&self.partial, &self.target)
    }

    /// Gives files of a directory other names than their writer has. To be called when all are whole.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system refuses.
    pub(crate) fn name_files(&self, names: &FileNames) -> Result<()> {
        let named = || -> io::Result<()> {
            for path in files_within(&self.partial)? {
                let within = path.strip_prefix(&self.partial).map_err(io::Error::other)?;
                let name = names.name_of(&within.to_string_lossy());
                fs::rename(&path, self.partial.join(name))?;
            }
            Ok(())
        };
        named().map_err(|error| cannot_write(&self.target, &error))
    }

    /// Moves the files into the directory that is there.
    fn add_files(&self, before: Before) -> io::Result<()> {
        for path in files_within(&self.partial)? {
            let within = path.strip_prefix(&self.partial).map_err(io::Error::other)?;
            let mut target = self.target.join(within);
            if let Some(directory) = target.parent() {
                fs::create_dir_all(directory)?;
            }
            if before == Before::Keep {
                target = free_name(target);
            }
            File::open(&path)?.sync_all()?;
            fs::rename(&path, target)?;
        }
        Ok(())
    }

    fn rename_directory(&self, before: Before) -> io::Result<()> {
        let is_there = fs::metadata(&self.target).is_ok_and(|found| found.is_dir());
        if is_there && matches!(before, Before::Replace | Before::Keep) {
            return self.add_files(before);
        }
        match fs::metadata(&self.target) {
            Ok(_) if before == Before::Remove => fs::remove_dir_all(&self.target)?,
            // Refused by the system if something has come into it.
            Ok(_) => fs::remove_dir(&self.target)?,
            Err(_) => {}
        }
        fs::rename(&self.partial, &self.target)
    }

    /// Waits for a reader, so that the statement can be cancelled meanwhile, and writes.
    async fn send(&self) -> io::Result<()> {
        let waiting = loop {
            let opened = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&self.target);
            match opened {
                Err(error) if error.raw_os_error() == Some(ENXIO) => {
                    tokio::time::sleep(READER_PAUSE).await;
                }
                other => break other?,
            }
        };
        let (from, to) = (self.partial.clone(), self.target.clone());
        let sent = tokio::task::spawn_blocking(move || {
            let mut pipe = OpenOptions::new().append(true).open(to)?;
            drop(waiting);
            io::copy(&mut File::open(from)?, &mut pipe)
        });
        sent.await.map_err(io::Error::other)?.map(|_| ())
    }
}

/// What to do about a directory that is not empty.
pub(crate) const NOT_EMPTY: &str =
    "write (OVERWRITE true) to replace all that is in it, or (APPEND true) to add files to it";

/// The files below a directory.
fn files_within(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// The path, with a number if something has its name.
fn free_name(path: PathBuf) -> PathBuf {
    let text =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let numbered = |number: u64| path.with_file_name(format!("{stem}_{number}.{extension}"));
    let is_free = |path: &PathBuf| !path.exists();
    if is_free(&path) {
        path.clone()
    } else {
        (1..).map(numbered).find(is_free).unwrap_or(path.clone())
    }
}

/// How files in directories are called.
#[derive(Debug)]
pub(crate) struct FileNames {
    pattern: String,
    extension: String,
    /// Names that are taken, within the directory that is written.
    taken: Mutex<HashSet<String>>,
}

impl FileNames {
    /// Names by a pattern, with an extension such as `.csv.gz`, beside those that are `taken`.
    pub(crate) fn new(pattern: &str, extension: String, taken: HashSet<String>) -> FileNames {
        let has_number =
            ["{i}", "{uuid}", "{uuidv4}", "{uuidv7}"].iter().any(|part| pattern.contains(part));
        let pattern = match has_number {
            true => pattern.to_owned(),
            false => format!("{pattern}{{i}}"),
        };
        FileNames { pattern, extension, taken: Mutex::new(taken) }
    }

    /// The name of the file that its writer calls `given`, both with the directories that it lies in.
    pub(crate) fn name_of(&self, given: &str) -> String {
        let directory = given.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = |number: u64| {
            let mut name = self.pattern.replace("{i}", &number.to_string());
            for part in ["{uuid}", "{uuidv4}", "{uuidv7}"] {
                if name.contains(part) {
                    name = name.replace(part, &random_identifier());
                }
            }
            let name = format!("{name}{}", self.extension);
            if directory.is_empty() { name } else { format!("{directory}/{name}") }
        };
        let free = (0..).map(numbered).find(|name| !taken.contains(name));
        let name = free.unwrap_or_else(|| given.to_owned());
        taken.insert(name.clone());
        name
    }
}

/// A random identifier in the form of a UUID of version 4.
fn random_identifier() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let (high, low) = (random(), random());
    let (high, low) = ((high & !0xf000) | 0x4000, (low & !(3 << 62)) | (2 << 62));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The system's answer where a pipe has no reader: that of Linux.
const ENXIO: i32 = 6;

/// The path that symbolic links lead to, whether something is there or not.
fn behind_links(name: &Path) -> io::Result<PathBuf> {
    let mut path = name.to_owned();
    for _ in 0..LINKS_MAX {
        let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        // A link to a pipe, such as those of `/proc/self/fd`, has a text that is no path.
        let is_special = fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        if !is_link || is_special || is_descriptor(&path) {
            return Ok(path);
        }
        let next = fs::read_link(&path)?;
        path = match path.parent() {
            Some(parent) if next.is_relative() => parent.join(next),
            _ => next,
        };
    }
    Err(io::Error::other("too many symbolic links lead to it"))
}

/// True for the names of the process's open files, whatever these are: what is written there comes after what they have.
fn is_descriptor(path: &Path) -> bool {
    let names = ["/dev/stdout", "/dev/stderr"];
    names.iter().any(|name| path == Path::new(name))
        || ["/dev/fd", "/proc/self/fd"].iter().any(|directory| path.starts_with(directory))
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn cannot_write(target: &Path, problem: &dyn std::fmt::Display) -> SqlError {
    SqlError::new(ErrorKind::Io, format!("cannot write '{}': {problem}", target.display()))
}

impl Drop for CopyTarget {
    fn drop(&mut self) {
        // Gone already if a directory was finished. What cannot be removed stays, and keeps nothing from anything.
        let _ = fs::remove_dir_all(&self.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_give_names_that_differ() {
        let taken = HashSet::from(["a=1/part_0.csv".to_owned()]);
        let names = FileNames::new("part_", ".csv".to_owned(), taken);
        assert_eq!(names.name_of("a=1/xyz_7.csv"), "a=1/part_1.csv");
        assert_eq!(names.name_of("a=1/xyz_8.csv"), "a=1/part_2.csv");
        assert_eq!(names.name_of("a=2/xyz_7.csv"), "a=2/part_0.csv");
        let names = FileNames::new("{uuid}", ".parquet".to_owned(), HashSet::new());
        let (one, other) = (names.name_of("a"), names.name_of("b"));
        assert!(one != other && one.len() == 36 + 8 && one.as_bytes()[14] == b'4', "{one} {other}");
    }
}
