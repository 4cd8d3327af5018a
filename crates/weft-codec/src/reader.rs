//! A cursor over untrusted bytes: every read is checked, every failure names the encoding.

use bytemuck::{AnyBitPattern, NoUninit};

use crate::error::{Error, Result, damaged};

/// What is left to read of one node.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    encoding: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, blaming `encoding` for what is missing.
    pub(crate) fn new(bytes: &'a [u8], encoding: &'static str) -> Self {
        Self { bytes, encoding }
    }

    /// Blames `encoding` from here on.
    pub(crate) fn named(self, encoding: &'static str) -> Self {
        Self { encoding, ..self }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.bytes.split_at_checked(len) else {
            return Err(Error::Truncated {
                encoding: self.encoding,
                needed: len,
                left: self.bytes.len(),
            });
        };
        self.bytes = tail;
        Ok(head)
    }

    /// The next little-endian value.
    pub(crate) fn value<T: AnyBitPattern>(&mut self) -> Result<T> {
        Ok(bytemuck::pod_read_unaligned(self.take(size_of::<T>())?))
    }

    /// The next 32-bit length, in whatever the caller counts.
    pub(crate) fn length(&mut self) -> Result<usize> {
        Ok(self.value::<u32>()? as usize)
    }

    /// The next child: a 32-bit length in bytes, and that many bytes.
    pub(crate) fn child(&mut self) -> Result<&'a [u8]> {
        let len = self.length()?;
        self.take(len)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<()> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(damaged(self.encoding, format!("{left} bytes too many"))),
        }
    }
}

/// Appends `value` in little-endian order.
pub(crate) fn put<T: NoUninit>(out: &mut Vec<u8>, value: T) {
    out.extend_from_slice(bytemuck::bytes_of(&value));
}

/// Appends a child: its 32-bit length in bytes, then the bytes.
pub(crate) fn put_child(out: &mut Vec<u8>, child: &[u8]) {
    put(out, u32::try_from(child.len()).expect("bodies are limited before they are encoded"));
    out.extend_from_slice(child);
}
