//! The bytes of a simulated file: sparse, and cheap to copy.

use std::io;
use std::sync::Arc;

/// Bytes that are stored or shared together.
const EXTENT_BYTES: usize = 64 << 10;

/// The longest simulated file, 1 TiB; a write beyond it fails with `EFBIG`.
pub(crate) const CONTENT_BYTES_MAX: u64 = 1 << 40;

/// Bytes in memory, extent by extent. A clone shares all extents until either side writes to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// `None` reads as zeros; so does what lies behind the last extent but before `len`.
    extents: Vec<Option<Arc<[u8; EXTENT_BYTES]>>>,
    len: u64,
}

impl Content {
    /// `len` zeros.
    ///
    /// # Errors
    /// `EFBIG` above 1 TiB.
    pub(crate) fn zeroed(len: u64) -> io::Result<Content> {
        check_end(Some(len))?;
        Ok(Content { extents: Vec::new(), len })
    }

    /// Everything that `source` has to read.
    ///
    /// # Errors
    /// Those of the source; `EFBIG` above 1 TiB.
    pub(crate) fn read_from(mut source: impl io::Read) -> io::Result<Content> {
        let mut content = Content::default();
        let mut extent = vec![0; EXTENT_BYTES];
        loop {
            match source.read(&mut extent) {
                Ok(0) => return Ok(content),
                Ok(count) => content.write(content.len, &extent[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Copies what there is from `offset` on into `target`; returns how many bytes.
    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(target.len() as u64) as usize;
        for (index, within, range) in pieces(offset, count) {
            match self.extents.get(index) {
                Some(Some(extent)) => {
                    target[range.clone()].copy_from_slice(&extent[within..within + range.len()]);
                }
                _ => target[range].fill(0),
            }
        }
        count
    }

    /// Replaces the bytes from `offset` on; the content grows as it must.
    ///
    /// # Errors
    /// `EFBIG` above 1 TiB.
    pub(crate) fn write(&mut self, offset: u64, source: &[u8]) -> io::Result<()> {
        let end = check_end(offset.checked_add(source.len() as u64))?;
        for (index, within, range) in pieces(offset, source.len()) {
            if index >= self.extents.len() {
                self.extents.resize(index + 1, None);
            }
            let extent = self.extents[index].get_or_insert_with(|| Arc::new([0; EXTENT_BYTES]));
            Arc::make_mut(extent)[within..within + range.len()].copy_from_slice(&source[range]);
        }
        if !source.is_empty() {
            self.len = self.len.max(end);
        }
        Ok(())
    }

    /// Grows to at least `end` bytes.
    ///
    /// # Errors
    /// `EFBIG` above 1 TiB.
    pub(crate) fn extend_to(&mut self, end: u64) -> io::Result<()> {
        self.len = self.len.max(check_end(Some(end))?);
        Ok(())
    }
}

fn check_end(end: Option<u64>) -> io::Result<u64> {
    end.filter(|end| *end <= CONTENT_BYTES_MAX)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
}

/// The extents that `len` bytes from `offset` on touch: index, offset within, range of the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % EXTENT_BYTES as u64) as usize;
        let count = (EXTENT_BYTES - within).min(len - done);
        let range = done..done + count;
        done += count;
        Some(((at / EXTENT_BYTES as u64) as usize, within, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_vector_of_bytes() {
        let mut random = super::super::random::Random::new(7, 0);
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        for round in 0..200u64 {
            let offset = random.below(300_000) as usize;
            let source = vec![round as u8 + 1; 1 + random.below(150_000) as usize];
            content.write(offset as u64, &source).unwrap();
            model.resize(model.len().max(offset + source.len()), 0);
            model[offset..offset + source.len()].copy_from_slice(&source);
            let from = random.below(450_000) as usize;
            let mut target = vec![0xEE; 100_000];
            let count = content.read(from as u64, &mut target);
            let expected = &model[from.min(model.len())..(from + 100_000).min(model.len())];
            assert_eq!(&target[..count], expected, "round {round}");
        }
    }

    #[test]
    fn clones_do_not_see_later_writes() {
        let mut content = Content::zeroed(10).unwrap();
        content.write(0, b"before").unwrap();
        let copy = content.clone();
        content.write(0, b"after!").unwrap();
        let mut bytes = [0; 6];
        copy.read(0, &mut bytes);
        assert_eq!(&bytes, b"before");
    }

    #[test]
    fn enormous_files_are_refused() {
        let mut content = Content::default();
        assert_eq!(content.write(u64::MAX, &[1]).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        assert_eq!(content.extend_to(1 << 62).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    }
}
