//! Places for the pages of a tree in one file.

use std::sync::{Arc, Mutex};

use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{IndexError, Space};
use weft_rt::io::File;
use weft_rt::memory::Ledger;

/// Bytes of the file.
pub const FILE_BYTES: usize = 16 << 20;

/// Gives the places of a file one after the other, freed places first.
#[derive(Default)]
pub struct Places {
    state: Mutex<(u64, Vec<PageId>)>,
}

impl Places {
    pub fn new() -> Arc<Places> {
        Arc::new(Places::default())
    }

    /// Nothing below `offset` is free.
    pub fn after(offset: u64) -> Arc<Places> {
        Arc::new(Places { state: Mutex::new((offset, Vec::new())) })
    }
}

impl Space for Places {
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError> {
        let mut state = self.state.lock().unwrap();
        if let Some(id) = state.1.pop() {
            return Ok(id);
        }
        let offset = state.0;
        if offset as usize + bytes > FILE_BYTES {
            return Err(IndexError::Space { reason: "the file is full".into() });
        }
        state.0 += bytes as u64;
        Ok(PageId::new(0, offset, bytes))
    }

    fn release(&self, id: PageId) {
        let mut state = self.state.lock().unwrap();
        assert!(!state.1.contains(&id), "{id:?} came back twice");
        state.1.push(id);
    }
}

/// A pool with memory for so many nodes of 4 KiB.
pub fn pool(file: File, nodes: u64) -> Arc<BufferPool> {
    let ledger = Ledger::new(nodes * 4096 + (256 << 10));
    let options = PoolOptions { bytes_min: Some(nodes * 4096), bytes_max: None };
    BufferPool::dynamic(Devices::new(vec![file]), ledger, options).unwrap()
}
