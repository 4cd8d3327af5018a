//! The tree of encodings of a block as text, for EXPLAIN and for people.

use crate::block::Block;
use crate::dictionary::Dictionary;
use crate::encoding::Encoding;
use crate::error::Result;
use crate::floats::Alp;
use crate::fsst::Fsst;
use crate::nested::{self, List};
use crate::physical::Physical;
use crate::runs::Runs;

/// Appends the lines of a block of lists or structs.
pub(crate) fn describe_nested(block: &Block, indent: usize, out: &mut String) -> Result<()> {
    let (node, rows) = (block.node(), block.rows());
    let (encoding, _) = Encoding::open(node, 0)?;
    let margin = "  ".repeat(indent);
    out.push_str(&format!("{margin}values: {encoding}, {rows} values, {} bytes\n", node.len()));
    let blocks = match block.physical() {
        Physical::List => {
            let list = List::open(node, block.nesting())?;
            describe(list.ends, "ends", Physical::UInt32, rows, (1, indent + 1), out)?;
            list.blocks
        }
        _ => nested::fields(node, block.nesting())?,
    };
    for block in blocks {
        out.push_str(&format!("{margin}  {}: {} rows\n", block.physical(), block.rows()));
        block.describe_nodes(indent + 2, out)?;
    }
    Ok(())
}

/// Appends the lines of a node of `rows` values of type `physical`, given its level and indentation.
pub(crate) fn describe(
    node: &[u8],
    role: &str,
    physical: Physical,
    rows: usize,
    (depth, indent): (u8, usize),
    out: &mut String,
) -> Result<()> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    let margin = "  ".repeat(indent);
    out.push_str(&format!("{margin}{role}: {encoding}, {rows} values, {} bytes\n", node.len()));
    let mut child = |node: &[u8], role: &str, physical, rows| {
        describe(node, role, physical, rows, (depth + 1, indent + 1), out)
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
        Encoding::Interval => {
            child(reader.child()?, "months", Physical::Int32, rows)?;
            child(reader.child()?, "days", Physical::Int32, rows)?;
            child(reader.rest(), "nanoseconds", Physical::Int64, rows)
        }
        Encoding::List | Encoding::Struct => Err(encoding.misplaced("plain values")),
    }
}
