//! What readers of files have in common.

use std::fmt::Debug;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::Result;

/// Where the types of a table's columns come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypesFrom {
    /// From the file's own description, from options, or from all of its values: each value fits, or is an error.
    Certain,
    /// From a sample: a later value may not fit, which is [`FilesError::Misfit`](crate::FilesError::Misfit).
    Sample,
}

/// What of a table is read, and in which portions.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// The columns, by number, in the order of the batches.
    pub projection: Vec<usize>,
    /// Bytes of a file that a piece has, about.
    pub piece_bytes: usize,
    /// Rows of a batch, at most.
    pub batch_rows: usize,
}

/// A table in one or several files.
pub trait FileReader: Debug + Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;

    /// Where the columns' types come from.
    fn types_from(&self) -> TypesFrom;

    /// Bytes of the files.
    fn bytes(&self) -> u64;

    /// Begins to read.
    ///
    /// # Errors
    /// If a file cannot be opened.
    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>>;
}

/// The pieces of a table, in the order of its rows.
pub trait Pieces: Send {
    /// Reads the next piece; `None` at the end.
    ///
    /// # Errors
    /// If a file cannot be read, or has no structure.
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>>;
}

/// Some rows as they lie in the file, whole in memory, that can be decoded on any thread.
pub trait Piece: Send {
    /// Bytes of the file that it is, as far as that can be told.
    fn bytes(&self) -> usize;

    /// Its rows.
    ///
    /// # Errors
    /// For values that do not fit.
    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>>;

    /// Its rows with their places, as far as the format has some.
    ///
    /// # Errors
    /// As [`Piece::decode`].
    fn decode_placed(self: Box<Self>) -> Result<Vec<PlacedBatch>> {
        let placed = |batch| PlacedBatch { batch, file: None, lines: None };
        Ok(self.decode()?.into_iter().map(placed).collect())
    }
}

/// Rows of one file, and where they lie in it.
#[derive(Clone, Debug)]
pub struct PlacedBatch {
    /// The rows.
    pub batch: RecordBatch,
    /// The number of the file among those of the table, if the reader has several.
    pub file: Option<usize>,
    /// For each row the number of its first line, from 1 on; `None` where rows are no lines.
    pub lines: Option<Vec<u64>>,
}
