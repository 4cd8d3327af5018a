//! One request on its way through a simulated device: what it does to the bytes, and when.

use std::io;
use std::slice;

use super::faults::Plan;
use super::file::{Change, SimFile};
use crate::io::blocking::execute;
use crate::io::driver::{Operation, Request};
use crate::io::file::Backing;

/// A request that has begun.
pub(crate) struct Transfer {
    request: Request,
    plan: Plan,
    /// What the file knows it by, if it keeps volatile writes.
    ticket: Option<u64>,
}

impl Transfer {
    /// Begins: a crash may find the effect from now on.
    pub(crate) fn begin(mut request: Request, plan: Plan) -> Transfer {
        if request.operation.is_transfer() {
            request.len = request.len.min(plan.bytes_max.unwrap_or(u64::MAX));
        }
        let mut transfer = Transfer { request, plan, ticket: None };
        if transfer.plan.error.is_none() || transfer.plan.cut {
            transfer.ticket = transfer.announce();
        }
        transfer
    }

    fn announce(&self) -> Option<u64> {
        let request = &self.request;
        let Backing::Sim(file) = request.file.backing() else { return None };
        match request.operation {
            Operation::Read | Operation::ReadVectored => None,
            Operation::Sync => file.begin_sync(),
            Operation::Write if file.keeps_volatile_writes() => {
                file.begin(Change::Bytes(request.offset, self.bytes().into()), self.plan.torn)
            }
            Operation::Allocate => {
                file.begin(Change::Extend(request.offset.saturating_add(request.len)), false)
            }
            Operation::Write => None,
        }
    }

    /// The request's key.
    pub(crate) fn key(&self) -> u32 {
        self.request.key
    }

    /// Has the effect, and returns what the request is to report.
    pub(crate) fn perform(self) -> io::Result<usize> {
        if let Some(errno) = self.plan.error {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.request.operation == Operation::ReadVectored {
            return self.perform_parts();
        }
        let mut transfer = self;
        let count = match transfer.request.file.backing() {
            Backing::Os(_) => execute(&transfer.request)?,
            Backing::Sim(file) => {
                let file = file.clone();
                transfer.perform_on(&file)?
            }
        };
        if let Some(bits) = transfer.plan.bit_flip
            && transfer.request.operation == Operation::Read
            && count > 0
        {
            let bit = bits % (count as u64 * 8);
            transfer.bytes_mut()[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(count)
    }

    /// Performs a vectored read, buffer by buffer, as far as the request goes.
    fn perform_parts(self) -> io::Result<usize> {
        let mut total = 0;
        for vector in self.request.vectors() {
            let left = self.request.len - total as u64;
            let request = Request {
                operation: Operation::Read,
                ptr: vector.iov_base.cast(),
                parts: 0,
                len: left.min(vector.iov_len as u64),
                offset: self.request.offset + total as u64,
                ..self.request.clone()
            };
            let len = request.len;
            // A wrong bit lies in the first buffer as well as anywhere.
            let bit_flip = self.plan.bit_flip.filter(|_| total == 0);
            let part = Transfer { request, plan: Plan { bit_flip, ..self.plan }, ticket: None };
            let count = if len > 0 { part.perform()? } else { 0 };
            total += count;
            if (count as u64) < len || len < vector.iov_len as u64 {
                break;
            }
        }
        Ok(total)
    }

    fn perform_on(&mut self, file: &SimFile) -> io::Result<usize> {
        let (offset, len) = (self.request.offset, self.request.len);
        match (self.request.operation, self.ticket) {
            (Operation::Read, _) => return Ok(file.read(offset, self.bytes_mut())),
            (Operation::ReadVectored, _) => unreachable!("performed part by part"),
            (Operation::Sync, Some(covered)) => file.complete_sync(covered),
            (Operation::Sync, None) => {}
            (Operation::Write | Operation::Allocate, Some(ticket)) => file.complete(ticket)?,
            (Operation::Write, None) => file.write_through(offset, self.bytes())?,
            (Operation::Allocate, None) => file.extend_through(offset.saturating_add(len))?,
        }
        Ok(if self.request.operation == Operation::Write { len as usize } else { 0 })
    }

    fn bytes(&self) -> &[u8] {
        debug_assert_eq!(self.request.operation, Operation::Write);
        // SAFETY: the reactor keeps `[ptr, ptr + len)` valid and unaliased until the completion is
        // reported, which happens after this transfer is gone; `len` was only made smaller. A
        // buffer is a Rust allocation, so its length fits.
        unsafe { slice::from_raw_parts(self.request.ptr, self.request.len as usize) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert_eq!(self.request.operation, Operation::Read);
        // SAFETY: as for `bytes`; the memory is this request's alone, and `&mut self` the only way.
        unsafe { slice::from_raw_parts_mut(self.request.ptr, self.request.len as usize) }
    }
}
