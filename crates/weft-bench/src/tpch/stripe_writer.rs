//! The files of a table while it is generated: created, continued after a stop, made whole.
//!
//! A file is called `….partial` until its last page is on disk. After each part the pages are synced,
//! then the header that counts them is written and synced: whenever the process dies, a header never
//! counts a page that is not there. The headers of several stripes may be one part apart, then the
//! lower number holds. The files take their names only when all headers say complete.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::TpchError;
use super::layout::seal;
use super::page_file::{TableSpec, drop_cached, read_header};
use super::page_header_block::{HEADER_BLOCK_BYTES, HeaderBlock};
use super::part_pages::PartPages;

/// Creates the data set's directories, and locks each; a lock lasts until its file is dropped.
///
/// # Errors
/// [`TpchError::Locked`] if another process or thread holds one, else the reason of the system.
pub(super) fn lock_directories(spec: &TableSpec) -> Result<Vec<File>, TpchError> {
    let mut directories = Vec::new();
    for stripe in 0..spec.directories.len() {
        let directory = spec.data_set_directory(stripe);
        let error = |e| TpchError::io("create", &directory, e);
        std::fs::create_dir_all(&directory).map_err(error)?;
        directories.push(directory.canonicalize().map_err(error)?);
    }
    // Sorted, so that two processes with the same directories do not each get one.
    directories.sort();
    directories.dedup();
    let lock = |directory: PathBuf| {
        let path = directory.join("generate.lock");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|e| TpchError::io("create", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => Err(TpchError::Locked { path }),
            Err(std::fs::TryLockError::Error(e)) => Err(TpchError::io("lock", &path, e)),
        }
    };
    directories.into_iter().map(lock).collect()
}

/// The table's files, open for writing, and what they hold so far.
pub(super) struct StripeWriter<'a> {
    spec: &'a TableSpec,
    files: Vec<(PathBuf, File)>,
    headers: Vec<HeaderBlock>,
}

/// What a stripe's file was found to be.
enum Found {
    /// Nothing that counts: absent, or created a moment before the process died.
    Fresh,
    Partial(HeaderBlock),
    Whole(HeaderBlock),
}

impl<'a> StripeWriter<'a> {
    /// Starts the files, or continues those that are there.
    ///
    /// # Errors
    /// [`TpchError`] if a file is foreign, of other data, shorter than its header says, or cannot be
    /// written. Nothing is changed then.
    pub(super) fn open(spec: &'a TableSpec, parts: u32) -> Result<StripeWriter<'a>, TpchError> {
        let stripes = 0..spec.directories.len();
        let found = stripes
            .clone()
            .map(|stripe| examine(spec, stripe, parts))
            .collect::<Result<Vec<_>, _>>()?;
        let is_done = |found: &Found| match found {
            Found::Whole(_) => true,
            Found::Partial(header) => header.is_complete,
            Found::Fresh => false,
        };
        // Some stripes have their names already: then all must be complete.
        if let Some(whole) = found.iter().position(|found| matches!(found, Found::Whole(_)))
            && let Some(other) = found.iter().position(|found| !is_done(found))
        {
            return Err(TpchError::Mismatch {
                path: spec.stripe_path(whole),
                what: "set",
                found: "complete".to_owned(),
                expected: format!("without {}", spec.stripe_path(other).display()),
            });
        }
        let start = resume_point(spec, parts, &found);
        let mut writer = StripeWriter { spec, files: Vec::new(), headers: Vec::new() };
        for (stripe, found) in stripes.zip(found) {
            let path = match found {
                Found::Whole(_) => spec.stripe_path(stripe),
                _ => spec.partial_path(stripe),
            };
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path);
            writer.files.push((path.clone(), file.map_err(|e| TpchError::io("create", &path, e))?));
            writer.headers.push(HeaderBlock { stripe: stripe as u16, ..start.clone() });
        }
        if !writer.is_complete() {
            // First the headers that count less, then shorter files: dying between does no harm.
            writer.write_headers()?;
            for ((path, file), header) in writer.files.iter().zip(&writer.headers) {
                file.set_len(header.file_bytes()).map_err(|e| TpchError::io("resize", path, e))?;
            }
        }
        Ok(writer)
    }

    /// Parts on disk.
    pub(super) fn parts_done(&self) -> u32 {
        self.headers[0].parts_done
    }

    /// Rows on disk.
    pub(super) fn rows(&self) -> u64 {
        self.headers[0].rows
    }

    fn is_complete(&self) -> bool {
        self.headers[0].is_complete
    }

    /// Seals and writes the pages of the next part, and returns when they are durable and counted.
    ///
    /// # Errors
    /// [`TpchError`] if the system refuses to write; the part does not count then.
    pub(super) fn append(&mut self, part: &mut PartPages) -> Result<(), TpchError> {
        let (mut page, rows) = (self.headers[0].pages, part.rows());
        for (bytes, tuple_count) in part.pages_mut() {
            let id = self.spec.page_id(page);
            seal(self.spec.table, bytes, tuple_count, id);
            let (path, file) = &self.files[usize::from(id.device())];
            file.write_all_at(bytes, id.offset()).map_err(|e| TpchError::io("write", path, e))?;
            page += 1;
        }
        // A stripe that got no page yet ends where its first page will be; and pages count only when
        // they are on disk.
        for ((path, file), header) in self.files.iter().zip(&mut self.headers) {
            header.pages = page;
            header.rows += rows;
            header.parts_done += 1;
            file.set_len(header.file_bytes()).map_err(|e| TpchError::io("resize", path, e))?;
            file.sync_data().map_err(|e| TpchError::io("sync", path, e))?;
        }
        self.write_headers()?;
        self.files.iter().try_for_each(|(path, file)| drop_cached(file, path))
    }

    /// Marks the files complete and gives them their names.
    ///
    /// # Errors
    /// [`TpchError`] if the system refuses; the next run then finishes the work.
    pub(super) fn finish(mut self) -> Result<(), TpchError> {
        assert_eq!(self.parts_done(), self.headers[0].parts, "parts are missing");
        if !self.is_complete() {
            self.headers.iter_mut().for_each(|header| header.is_complete = true);
            self.write_headers()?;
        }
        for (stripe, (path, file)) in self.files.iter().enumerate() {
            drop_cached(file, path)?;
            let name = self.spec.stripe_path(stripe);
            if *path != name {
                std::fs::rename(path, &name).map_err(|e| TpchError::io("rename", path, e))?;
                sync_directory_of(&name)?;
            }
        }
        Ok(())
    }

    fn write_headers(&self) -> Result<(), TpchError> {
        for ((path, file), header) in self.files.iter().zip(&self.headers) {
            let written = file.write_all_at(&header.encode(), 0).and_then(|()| file.sync_data());
            written.map_err(|e| TpchError::io("write", path, e))?;
        }
        Ok(())
    }
}

/// Makes a file's name durable.
pub(super) fn sync_directory_of(path: &Path) -> Result<(), TpchError> {
    let directory = path.parent().expect("files lie in directories");
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| TpchError::io("sync", directory, e))
}

/// The header to continue from: the one with the fewest parts, as its stripe has nothing beyond.
fn resume_point(spec: &TableSpec, parts: u32, found: &[Found]) -> HeaderBlock {
    let empty = spec.empty_header(0, parts);
    found
        .iter()
        .map(|found| match found {
            Found::Fresh => &empty,
            Found::Partial(header) | Found::Whole(header) => header,
        })
        .min_by_key(|header| (header.parts_done, header.is_complete))
        .expect("at least one stripe")
        .clone()
}

/// Looks at what is there for a stripe.
fn examine(spec: &TableSpec, stripe: usize, parts: u32) -> Result<Found, TpchError> {
    let open = |path: &Path| match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TpchError::io("open", path, error)),
    };
    let (whole, partial) = (spec.stripe_path(stripe), spec.partial_path(stripe));
    if let Some(file) = open(&whole)? {
        let header = examine_file(spec, stripe, parts, &file, &whole)?;
        return if header.is_complete {
            Ok(Found::Whole(header))
        } else {
            // Nobody but us writes such a file, and we rename only complete ones.
            let reason = "it is not complete, but has its final name";
            Err(TpchError::HeaderDamaged { path: whole, reason })
        };
    }
    match open(&partial)? {
        None => Ok(Found::Fresh),
        Some(file) if is_blank(&file, &partial)? => Ok(Found::Fresh),
        Some(file) => match examine_file(spec, stripe, parts, &file, &partial) {
            // The power failed while the header was rewritten: the file is ours, but its state is lost.
            Err(TpchError::HeaderDamaged { .. }) => Ok(Found::Fresh),
            other => other.map(Found::Partial),
        },
    }
}

/// Whether the file's first bytes were never written: the process died right after creating it.
fn is_blank(file: &File, path: &Path) -> Result<bool, TpchError> {
    let mut block = [0; HEADER_BLOCK_BYTES];
    let read = file.read_at(&mut block, 0).map_err(|e| TpchError::io("read", path, e))?;
    Ok(block[..read].iter().all(|&byte| byte == 0))
}

fn examine_file(
    spec: &TableSpec,
    stripe: usize,
    parts: u32,
    file: &File,
    path: &Path,
) -> Result<HeaderBlock, TpchError> {
    let header = read_header(file, path)?;
    spec.check_header(&header, stripe, path)?;
    if header.parts != parts {
        let (found, expected) = (header.parts.to_string(), parts.to_string());
        let what = "number of parts";
        return Err(TpchError::Mismatch { path: path.to_owned(), what, found, expected });
    }
    let (found, expected) = (
        file.metadata().map_err(|e| TpchError::io("examine", path, e))?.len(),
        header.file_bytes(),
    );
    // A partial file may be longer: pages of a part that was not counted yet.
    if found < expected || (header.is_complete && found > expected) {
        return Err(TpchError::Length { path: path.to_owned(), found, expected });
    }
    Ok(header)
}
