//! The two copies of the manifest, and how they are replaced.
//!
//! A commit writes both new copies under other names, makes their bytes durable, gives them their names
//! and makes those durable; only then is it acknowledged. So whichever copy can be read is at least as new
//! as the last acknowledged commit, the newer of two counts, and a damaged one is made good from the other.

use futures::future::join_all;
use weft_rt::io::Access;

use crate::FORMAT_VERSION;
use crate::directory::{Directory, off_worker, read_file, write_file};
use crate::error::{Result, StoreError};
use crate::manifest::{Manifest, ManifestError};

/// Names of the copies, and those under which new ones are written.
const COPIES: [(&str, &str); 2] =
    [("MANIFEST", "MANIFEST.new"), ("MANIFEST.copy", "MANIFEST.copy.new")];

/// What the copies say.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) manifest: Manifest,
    /// A copy is older, damaged or missing, and why.
    pub(crate) to_repair: Option<String>,
}

/// Reads both copies, on a worker; `None` if there is neither.
///
/// # Errors
/// [`StoreError::FormatVersion`] if one was written by another version, [`StoreError::Damaged`] if none
/// can be read.
pub(crate) async fn read(directory: &Directory) -> Result<Option<Found>> {
    let mut newest: Option<Manifest> = None;
    let (mut problems, mut copies) = (Vec::new(), 0);
    for (name, _) in COPIES {
        let Some(file) = directory.open_file(name, Access::Read)? else {
            problems.push(format!("{name} is missing"));
            continue;
        };
        copies += 1;
        let bytes = match read_file(&file).await {
            Ok(bytes) => bytes,
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        match Manifest::decode(&bytes) {
            Err(ManifestError::Version(found)) => {
                let (path, supported) = (file.path().into(), FORMAT_VERSION);
                return Err(StoreError::FormatVersion { path, found, supported });
            }
            Err(ManifestError::Damaged(problem)) => problems.push(format!("{name}: {problem}")),
            Ok(manifest) => {
                if let Some(other) = &newest
                    && other.generation != manifest.generation
                {
                    problems.push(format!("{name} has generation {}", manifest.generation));
                }
                if newest.as_ref().is_none_or(|other| other.generation < manifest.generation) {
                    newest = Some(manifest);
                }
            }
        }
    }
    match newest {
        Some(manifest) => {
            let to_repair = (!problems.is_empty()).then(|| problems.join("; "));
            Ok(Some(Found { manifest, to_repair }))
        }
        None if copies == 0 => Ok(None),
        None => Err(StoreError::Damaged {
            path: directory.path().join(COPIES[0].0),
            place: "both copies of the manifest".into(),
            problem: problems.join("; "),
        }),
    }
}

/// Writes both new copies under their temporary names, on a worker; durable with `sync`.
pub(crate) async fn prepare(directory: &Directory, manifest: &Manifest, sync: bool) -> Result<()> {
    let bytes = manifest.encode();
    let create = |directory: Directory| {
        move || COPIES.iter().map(|(_, new)| directory.create_file(new)).collect::<Result<Vec<_>>>()
    };
    let files = off_worker(create(directory.clone())).await??;
    let written = join_all(files.iter().map(|file| write_file(file, &bytes, sync))).await;
    written.into_iter().collect()
}

/// Removes what [`prepare`] wrote.
pub(crate) fn discard(directory: &Directory) {
    for (_, new) in COPIES {
        // What is left is removed before it is written next time.
        directory.remove(new).ok();
    }
}

/// Gives the prepared copies their names, and makes those durable with `sync`. If it fails, either
/// generation may be found afterwards.
pub(crate) fn publish(directory: &Directory, sync: bool) -> Result<()> {
    for (name, new) in COPIES {
        directory.rename(new, name)?;
    }
    if sync {
        directory.sync()?;
    }
    Ok(())
}

/// True if a directory's files say that it holds a database.
pub(crate) fn is_there(names: &[String]) -> bool {
    COPIES.iter().any(|(copy, _)| names.iter().any(|name| name == copy))
}

/// True if a directory's files say that a database was begun there and never finished: it may be made
/// again.
pub(crate) fn is_unfinished(names: &[String]) -> bool {
    names.iter().all(|name| {
        let ours = ["LOCK", "spill", "lost+found"].contains(&name.as_str());
        ours || name.ends_with(".new") && name.starts_with("MANIFEST")
            || name.starts_with("data-") && name.ends_with(".weft")
    })
}
