//! A place in a partition that goes forward, and a field of the rows there.

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::super::column::Column;
use super::blocks::{Blocks, Loaded};
use crate::error::Result;
use crate::pace::Pace;

/// The place.
#[derive(Debug)]
pub(super) struct Cursor {
    field: Option<usize>,
    at: Option<At>,
}

/// The block where it is.
#[derive(Debug)]
struct At {
    loaded: Arc<Loaded>,
    column: Option<Column>,
    _memory: Reservation,
}

impl Cursor {
    /// One that has seen nothing; without a field it has no column.
    pub(super) fn new(field: Option<usize>) -> Cursor {
        Cursor { field, at: None }
    }

    /// Goes to the block of a row, unless it is there; true if it has moved.
    ///
    /// # Errors
    /// Those of [`Blocks::load`].
    pub(super) async fn go(&mut self, row: usize, blocks: &mut Blocks) -> Result<bool> {
        if self.at.as_ref().is_some_and(|at| at.loaded.has(row)) {
            return Ok(false);
        }
        self.at = None;
        let loaded = blocks.load(blocks.of_row(row)).await?;
        self.set(loaded, blocks).await?;
        Ok(true)
    }

    /// Goes to a block.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn set(&mut self, loaded: Arc<Loaded>, blocks: &mut Blocks) -> Result<()> {
        self.at = None;
        let layout = blocks.shared.layout.clone();
        let (mut memory, mut column) = (blocks.input.ledger.empty(), None);
        if let Some(field) = self.field {
            let bytes = (loaded.rows() * layout.field(field).lane.width()) as u64;
            memory = blocks.reserved(bytes).await?;
            let (entries, rows) = (loaded.chunk.entries(), 0..loaded.rows());
            let pace = &mut Pace::default();
            // SAFETY: the tuples are those of the sort, as the layout is.
            column = Some(unsafe { Column::gather(entries, rows, &layout, field, pace).await });
        }
        self.at = Some(At { loaded, column, _memory: memory });
        Ok(())
    }

    /// Keeps no block until it goes on.
    pub(super) fn leave(&mut self) {
        self.at = None;
    }

    fn at(&self) -> &At {
        self.at.as_ref().expect("the cursor is somewhere")
    }

    /// The block.
    pub(super) fn block(&self) -> &Arc<Loaded> {
        &self.at().loaded
    }

    /// The number of a row in the block.
    pub(super) fn place(&self, row: usize) -> usize {
        row - self.at().loaded.first
    }

    /// The field of the block's rows; `None` if there is none.
    pub(super) fn column(&self) -> Option<&Column> {
        self.at().column.as_ref()
    }
}
