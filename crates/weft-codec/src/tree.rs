//! The tree of encodings of a block as text, for EXPLAIN and for people.

use crate::dictionary::Dictionary;
use crate::encoding::Encoding;
use crate::error::Result;
use crate::floats::Alp;
use crate::fsst::Fsst;
use crate::physical::Physical;
use crate::runs::Runs;

/// Appends the lines of a node of `rows` values of type `physical`; `depth` is its indentation.
pub(crate) fn describe(
    node: &[u8],
    role: &str,
    physical: Physical,
    rows: usize,
    depth: u8,
    out: &mut String,
) -> Result<()> {
    let (encoding, mut reader) = Encoding::open(node, depth - 1)?;
    let indent = "  ".repeat(depth.into());
    out.push_str(&format!("{indent}{role}: {encoding}, {rows} values, {} bytes\n", node.len()));
    let mut child = |node: &[u8], role: &str, physical, rows| {
        describe(node, role, physical, rows, depth + 1, out)
    };
    let strings = matches!(physical, Physical::Utf8 | Physical::Binary);
    match encoding {
        Encoding::Plain if strings => child(reader.child()?, "ends", Physical::UInt32, rows),
        Encoding::Plain | Encoding::Constant | Encoding::FrameOfReference | Encoding::Delta => {
            Ok(())
        }
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            child(dictionary.entries, "entries", physical, dictionary.len)?;
            child(dictionary.codes, "codes", Physical::UInt16, rows)
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            child(runs.values, "runs", physical, runs.len)?;
            child(runs.lasts, "lasts", Physical::UInt16, runs.len)
        }
        Encoding::Alp if physical == Physical::Float32 => {
            child(Alp::open::<f32>(reader, rows)?.integers, "integers", Physical::Int32, rows)
        }
        Encoding::Alp => {
            child(Alp::open::<f64>(reader, rows)?.integers, "integers", Physical::Int64, rows)
        }
        Encoding::Fsst => {
            let fsst = Fsst::open(reader)?;
            child(fsst.ends, "ends", Physical::UInt32, rows)?;
            child(fsst.code_ends, "code ends", Physical::UInt32, rows)
        }
        Encoding::Narrow => child(reader.rest(), "low halves", Physical::Int64, rows),
        Encoding::Wide => {
            child(reader.child()?, "high halves", Physical::Int64, rows)?;
            child(reader.rest(), "low halves", Physical::UInt64, rows)
        }
    }
}
