//! Numbers and strings as the files hold them: little-endian, strings after their length.
//!
//! Nothing read through [`Reader`] can panic, over-read or allocate more than the bytes that there are.

/// The bytes end early, or say something impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WireError(pub(crate) String);

pub(crate) type WireResult<T> = std::result::Result<T, WireError>;

/// The error that says `problem`.
pub(crate) fn wrong<T>(problem: impl Into<String>) -> WireResult<T> {
    Err(WireError(problem.into()))
}

/// Appends to a vector.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A length in four bytes.
    ///
    /// # Panics
    /// If it is 2^32 or more: nothing that is counted here comes near.
    pub(crate) fn len(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("fewer than 2^32 of anything"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn str(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn option_str(&mut self, text: Option<&str>) {
        self.u8(u8::from(text.is_some()));
        if let Some(text) = text {
            self.str(text);
        }
    }
}

/// Reads from the front of a slice.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> WireResult<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return wrong(format!("{len} bytes are needed where {} are left", self.rest.len()));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> WireResult<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    pub(crate) fn u8(&mut self) -> WireResult<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> WireResult<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> WireResult<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> WireResult<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bool(&mut self) -> WireResult<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => wrong(format!("{other} where 0 or 1 is expected")),
        }
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Goes on with `rest`, the end of what was left.
    pub(crate) fn set_rest(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    /// Checks that there may be `count` items of at least `bytes_each` bytes each.
    pub(crate) fn expect(&self, count: usize, bytes_each: usize) -> WireResult<()> {
        if count.saturating_mul(bytes_each) > self.rest.len() {
            return wrong(format!("{count} items where {} bytes are left", self.rest.len()));
        }
        Ok(())
    }

    /// A count of items that take at least `bytes_each` bytes each, so that it cannot ask for more
    /// memory than there are bytes.
    pub(crate) fn count(&mut self, bytes_each: usize) -> WireResult<usize> {
        let count = self.u32()? as usize;
        self.expect(count, bytes_each)?;
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> WireResult<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    pub(crate) fn str(&mut self) -> WireResult<String> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => wrong(format!("a text is not UTF-8: {error}")),
        }
    }

    pub(crate) fn option_str(&mut self) -> WireResult<Option<String>> {
        if self.bool()? { Ok(Some(self.str()?)) } else { Ok(None) }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> WireResult<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            wrong(format!("{} bytes more than expected", self.rest.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.u8(1);
        writer.u32(3);
        writer.u64(u64::MAX);
        writer.str("Kette");
        writer.option_str(None);
        writer.option_str(Some("Schuss"));
        let mut reader = Reader::new(&writer.0);
        assert!(reader.bool().unwrap());
        assert_eq!((reader.u32(), reader.u64()), (Ok(3), Ok(u64::MAX)));
        assert_eq!(reader.str().unwrap(), "Kette");
        assert_eq!(reader.option_str().unwrap(), None);
        assert_eq!(reader.option_str().unwrap().as_deref(), Some("Schuss"));
        reader.end().unwrap();
        for len in 0..writer.0.len() {
            let mut reader = Reader::new(&writer.0[..len]);
            let read = (|| {
                reader.take(13)?;
                reader.str()?;
                reader.option_str()?;
                reader.option_str()
            })();
            assert!(read.is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_count_cannot_ask_for_much() {
        let bytes = [0xff; 12];
        assert!(Reader::new(&bytes).count(1).is_err());
        assert!(Reader::new(&bytes).bytes().is_err());
    }
}
