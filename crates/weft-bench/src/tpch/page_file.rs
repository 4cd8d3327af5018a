//! Tables as files of pages, striped over directories: their names, how they are opened, where their
//! pages lie.
//!
//! A table of `n` stripes is `n` files; page `i` is in file `i % n`, at place `i / n` after the header
//! block. The page's id names stripe and offset, and is sealed into the page. Everything that a
//! file's header says is checked against what the caller asks for before a page is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use weft_buffer::page::{self, PageId};

use super::error::TpchError;
use super::layout::{LayoutError, Table};
use super::page_header_block::{GENERATOR, HEADER_BLOCK_BYTES, HeaderBlock, data_start};
use crate::size_class::SizeClass;

/// Which table, at which scale, in pages of which size, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The table.
    pub table: Table,
    /// TPC-H's scale factor: 1 is about 1 GB of raw data.
    pub scale_factor: f64,
    /// Page size.
    pub class: SizeClass,
    /// One directory per stripe, usually each on a device of its own; a directory may come twice.
    pub directories: Vec<PathBuf>,
}

impl TableSpec {
    /// The directory in which stripe number `stripe` lies.
    ///
    /// # Panics
    /// If there is no such stripe.
    pub fn data_set_directory(&self, stripe: usize) -> PathBuf {
        self.directories[stripe].join(format!("tpch-sf{}", self.scale_factor))
    }

    /// The file of stripe number `stripe`: `DIR/tpch-sf1/lineitem_q1.64k.pages`, and if there are
    /// several stripes `DIR/tpch-sf1/lineitem_q1.64k.1-of-2.pages` for the first of two.
    ///
    /// # Panics
    /// If there is no such stripe.
    pub fn stripe_path(&self, stripe: usize) -> PathBuf {
        let (name, kib) = (self.table.name(), self.class.bytes() / 1024);
        let file = match self.directories.len() {
            1 => format!("{name}.{kib}k.pages"),
            count => format!("{name}.{kib}k.{}-of-{count}.pages", stripe + 1),
        };
        self.data_set_directory(stripe).join(file)
    }

    /// The name of stripe number `stripe` until it is complete.
    pub(super) fn partial_path(&self, stripe: usize) -> PathBuf {
        self.stripe_path(stripe).with_extension("pages.partial")
    }

    /// The id of page number `page`.
    pub fn page_id(&self, page: u64) -> PageId {
        let stripes = self.directories.len() as u64;
        let offset = data_start(self.class) + page / stripes * self.class.bytes() as u64;
        PageId::new((page % stripes) as u8, offset, self.class.bytes())
    }

    /// Checks the scale factor and the number of directories.
    ///
    /// # Errors
    /// [`TpchError::ScaleFactor`], [`TpchError::Directories`].
    pub fn validate(&self) -> Result<(), TpchError> {
        if !(0.001..=10_000.0).contains(&self.scale_factor) {
            return Err(TpchError::ScaleFactor(self.scale_factor));
        }
        match self.directories.len() {
            1..=256 => Ok(()),
            count => Err(TpchError::Directories(count)),
        }
    }

    /// The header of an empty stripe.
    pub(super) fn empty_header(&self, stripe: usize, parts: u32) -> HeaderBlock {
        let (table, kib) = (self.table.name(), self.class.bytes() / 1024);
        let count = self.directories.len();
        // The data follows from the parameters, so stripes belong together if these are the same.
        let parameters = format!("{table} {} {kib} {count} {parts} {GENERATOR}", self.scale_factor);
        let halves = [checksum(&parameters, "a"), checksum(&parameters, "b")];
        HeaderBlock {
            table: self.table,
            class: self.class,
            stripe: stripe as u16,
            stripe_count: count as u16,
            is_complete: false,
            scale_factor: self.scale_factor,
            set_id: (halves[0] << 32) | halves[1],
            pages: 0,
            rows: 0,
            parts,
            parts_done: 0,
            generator: GENERATOR.to_owned(),
        }
    }

    /// Checks that a header found at `path` belongs to stripe number `stripe` of this table.
    pub(super) fn check_header(
        &self,
        header: &HeaderBlock,
        stripe: usize,
        path: &Path,
    ) -> Result<(), TpchError> {
        let expected = self.empty_header(stripe, header.parts);
        let text = |header: &HeaderBlock| {
            [
                ("table", header.table.name().to_owned()),
                ("page size", format!("{:?}", header.class)),
                ("scale factor", header.scale_factor.to_string()),
                ("number of stripes", header.stripe_count.to_string()),
                ("stripe number (from 0)", header.stripe.to_string()),
                ("generator", header.generator.clone()),
                ("set id", header.set_id.to_string()),
            ]
        };
        for ((what, found), (_, expected)) in text(header).into_iter().zip(text(&expected)) {
            if found != expected {
                return Err(TpchError::Mismatch { path: path.to_owned(), what, found, expected });
            }
        }
        Ok(())
    }
}

fn checksum(text: &str, salt: &str) -> u64 {
    page::checksum(format!("{salt} {text}").as_bytes()).into()
}

/// Reads the header block of an open file.
pub(super) fn read_header(file: &File, path: &Path) -> Result<HeaderBlock, TpchError> {
    let mut block = vec![0; HEADER_BLOCK_BYTES];
    match file.read_exact_at(&mut block, 0) {
        Ok(()) => HeaderBlock::decode(&block, path),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(TpchError::Foreign { path: path.to_owned() })
        }
        Err(error) => Err(TpchError::io("read", path, error)),
    }
}

/// A complete table on disk.
#[derive(Clone, Debug)]
pub struct PageTable {
    /// What it is.
    pub spec: TableSpec,
    /// Its files; a page's device number is the position here.
    pub stripes: Vec<PathBuf>,
    /// Its pages, in the order of the rows.
    pub page_ids: Vec<PageId>,
    /// Its rows.
    pub rows: u64,
}

impl PageTable {
    /// Opens the table that `spec` describes.
    ///
    /// # Errors
    /// [`TpchError`] if the spec is impossible, or a file is missing, foreign, damaged, of other
    /// data, incomplete, or not as long as it should be.
    pub fn open(spec: &TableSpec) -> Result<PageTable, TpchError> {
        spec.validate()?;
        let stripes: Vec<PathBuf> =
            (0..spec.directories.len()).map(|stripe| spec.stripe_path(stripe)).collect();
        let mut first: Option<HeaderBlock> = None;
        for (stripe, path) in stripes.iter().enumerate() {
            let file = File::open(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => missing(spec, stripe),
                _ => TpchError::io("open", path, error),
            })?;
            let header = read_header(&file, path)?;
            spec.check_header(&header, stripe, path)?;
            if !header.is_complete {
                let (parts_done, parts) = (header.parts_done, header.parts);
                return Err(TpchError::Incomplete { path: path.clone(), parts_done, parts });
            }
            let found = file.metadata().map_err(|e| TpchError::io("examine", path, e))?.len();
            if found != header.file_bytes() {
                let expected = header.file_bytes();
                return Err(TpchError::Length { path: path.clone(), found, expected });
            }
            let first = first.get_or_insert_with(|| header.clone());
            let text = |h: &HeaderBlock| format!("{} pages, {} rows", h.pages, h.rows);
            if (header.pages, header.rows, header.set_id) != (first.pages, first.rows, first.set_id)
            {
                let (found, expected) = (text(&header), text(first));
                let what = "set";
                return Err(TpchError::Mismatch { path: path.clone(), what, found, expected });
            }
        }
        let header = first.expect("at least one stripe");
        let page_ids = (0..header.pages).map(|page| spec.page_id(page)).collect();
        Ok(PageTable { spec: spec.clone(), stripes, page_ids, rows: header.rows })
    }

    /// Reads all pages in order, verified, and hands each to `consume` with its number, aligned to 8
    /// bytes. The operating system is told not to keep them in its page cache.
    ///
    /// # Errors
    /// [`TpchError`] if a page cannot be read, fails its checksum, or is refused by `consume`.
    pub fn for_each_page(
        &self,
        mut consume: impl FnMut(usize, &[u8]) -> Result<(), LayoutError>,
    ) -> Result<(), TpchError> {
        let open = |path: &PathBuf| File::open(path).map_err(|e| TpchError::io("open", path, e));
        let files = self.stripes.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut words = vec![0u64; self.spec.class.bytes() / 8];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (number, &id) in self.page_ids.iter().enumerate() {
            let stripe = usize::from(id.device());
            let path = || self.stripes[stripe].clone();
            files[stripe]
                .read_exact_at(bytes, id.offset())
                .map_err(|error| TpchError::io("read", &path(), error))?;
            page::verify(bytes, id).map_err(|source| TpchError::Page {
                path: path(),
                page: id,
                source,
            })?;
            consume(number, bytes).map_err(|source| TpchError::Layout {
                path: path(),
                page: id,
                source,
            })?;
        }
        files.iter().zip(&self.stripes).try_for_each(|(file, path)| drop_cached(file, path))
    }
}

/// The error for a stripe that is not there: incomplete if its generation began.
fn missing(spec: &TableSpec, stripe: usize) -> TpchError {
    let path = spec.partial_path(stripe);
    let header = File::open(&path).ok().and_then(|file| read_header(&file, &path).ok());
    match header {
        Some(HeaderBlock { parts_done, parts, .. }) => {
            TpchError::Incomplete { path, parts_done, parts }
        }
        None => TpchError::Missing { path: spec.stripe_path(stripe) },
    }
}

/// Tells the operating system that the file's pages in its cache are of no more use.
pub(super) fn drop_cached(file: &File, path: &Path) -> Result<(), TpchError> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
        .map_err(|error| TpchError::io("release the cache of", path, error.into()))
}
