//! The tags of the encodings, and the depth of cascades.

use std::fmt;

use crate::error::{Result, damaged};
use crate::reader::Reader;

/// A cascade is a tree of nodes; the encoder makes at most three levels of choice, whose leaves are
/// one level further down. A decoder refuses anything deeper.
pub(crate) const MAX_DEPTH: u8 = 4;

/// How the values of one node are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// The values one after the other (booleans: a bitmap).
    Plain = 0,
    /// One value for all rows.
    Constant = 1,
    /// Differences to the least value of each 1,024, bit-packed.
    FrameOfReference = 2,
    /// Differences to the value before, bit-packed, restarted each 1,024 values.
    Delta = 3,
    /// Distinct values, and a code per row.
    Dictionary = 4,
    /// Values of runs, and where each run ends.
    RunLength = 5,
    /// Floats as integers times a power of ten, with exceptions.
    Alp = 6,
    /// Strings by a table of 255 symbols of up to eight bytes.
    Fsst = 7,
    /// 128-bit integers that fit in 64 bits.
    Narrow = 8,
    /// 128-bit integers as high and low halves.
    Wide = 9,
    /// Lists as their ends and blocks of their items.
    List = 10,
    /// Structs as a block per field.
    Struct = 11,
    /// Intervals as months, days and nanoseconds.
    Interval = 12,
}

impl Encoding {
    /// The name in errors and encoding trees.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Constant => "constant",
            Self::FrameOfReference => "frame-of-reference",
            Self::Delta => "delta",
            Self::Dictionary => "dictionary",
            Self::RunLength => "run-length",
            Self::Alp => "alp",
            Self::Fsst => "fsst",
            Self::Narrow => "narrow",
            Self::Wide => "wide",
            Self::List => "list",
            Self::Struct => "struct",
            Self::Interval => "interval",
        }
    }

    /// Splits a node into its encoding and its payload. `depth` is the node's level, the root's 0.
    pub(crate) fn open(node: &[u8], depth: u8) -> Result<(Self, Reader<'_>)> {
        let mut reader = Reader::new(node, "node");
        let encoding = match reader.value::<u8>()? {
            0 => Self::Plain,
            1 => Self::Constant,
            2 => Self::FrameOfReference,
            3 => Self::Delta,
            4 => Self::Dictionary,
            5 => Self::RunLength,
            6 => Self::Alp,
            7 => Self::Fsst,
            8 => Self::Narrow,
            9 => Self::Wide,
            10 => Self::List,
            11 => Self::Struct,
            12 => Self::Interval,
            tag => return Err(damaged("node", format!("unknown encoding {tag}"))),
        };
        if depth > MAX_DEPTH {
            return Err(damaged(encoding.name(), "cascade too deep"));
        }
        Ok((encoding, reader.named(encoding.name())))
    }

    /// The error for an encoding that values of this kind never have.
    pub(crate) fn misplaced(self, kind: &str) -> crate::Error {
        damaged(self.name(), format!("{kind} are never encoded like this"))
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
