//! Looks at the values of JSON files for their types: at all of them, or at a sample, which is the beginning of each file, and, where
//! values lie one a line and the text can be read from any place on, lines from places all over it.

use std::io::{Read, Seek, SeekFrom};

use weft_json::Shape;

use super::cut::Cutter;
use super::{JsonOptions, Layout, in_file, is_broken};
use crate::error::{FilesError, Result};
use crate::input::Input;

/// Bytes that are looked at at a time.
const LOOK_BYTES: usize = 1 << 20;

/// Bytes at the beginning that belong to a sample. Of a text that is not longer all values are looked at.
const HEAD_BYTES: usize = 4 << 20;

/// Places in a larger file that are looked at, and how many bytes there.
const PLACES: u64 = 32;
const PLACE_BYTES: usize = 64 << 10;

/// What was found out about a file, but for the shape of its values.
pub(super) struct Looked {
    pub(super) layout: Layout,
    /// All values were looked at.
    pub(super) is_whole: bool,
}

/// Widens the shape by the values of a file, all of them or a sample.
///
/// # Errors
/// If the file cannot be read, or a value is no JSON.
pub(super) fn look(input: &Input, options: &JsonOptions, shape: &mut Shape) -> Result<Looked> {
    let cutter = Cutter::open(input, options.layout, options)?;
    let layout = cutter.layout();
    if layout != Layout::Lines || options.layout.is_some() || options.ignore_errors {
        let is_whole = look_by(cutter, input, options, shape)?;
        return Ok(Looked { layout, is_whole });
    }
    // Only the start of the file has one value a line, perhaps.
    let before = shape.clone();
    let error = match look_by(cutter, input, options, shape) {
        Ok(is_whole) => return Ok(Looked { layout, is_whole }),
        Err(error) => error,
    };
    *shape = before;
    let layout = Layout::Values;
    let cutter = Cutter::open(input, Some(layout), options)?;
    match look_by(cutter, input, options, shape) {
        Ok(is_whole) => Ok(Looked { layout, is_whole }),
        Err(_) => Err(error),
    }
}

/// Widens the shape by the values that `cutter` finds and, if these are not all, by some in other places. Returns whether all
/// values were looked at.
fn look_by(
    mut cutter: Cutter,
    input: &Input,
    options: &JsonOptions,
    shape: &mut Shape,
) -> Result<bool> {
    let rows_max = options.sample_rows.flatten();
    // What does not fit is NULL then: no later value would tell that the sample did not do.
    let wants_all = options.sample_rows == Some(None) || options.ignore_errors;
    let (mut rows, mut bytes) = (0, 0);
    while let Some(cut) = cutter.next_cut(LOOK_BYTES)? {
        let is_lenient = options.ignore_errors && cut.layout == Layout::Lines;
        let seen = cut.each_value(|text, at| {
            rows += 1;
            match is_lenient && is_broken(&text[at..]) {
                true => Ok(None),
                false => shape.see_next(text, at),
            }
        });
        seen.map_err(|error| in_file(input, &cut, error))?;
        bytes += cut.text.len();
        let is_sample = bytes >= HEAD_BYTES || rows_max.is_some_and(|max| rows >= max);
        if is_sample && !wants_all {
            if cutter.layout() == Layout::Lines && input.is_seekable_text()? {
                look_elsewhere(input, shape)?;
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Widens the shape by lines in other places of a file. Whether they are JSON is found when they are read.
fn look_elsewhere(input: &Input, shape: &mut Shape) -> Result<()> {
    let failed = |error| FilesError::read(input.path(), error);
    let mut file = input.open_raw()?;
    let bytes = input.bytes();
    let mut text = Vec::with_capacity(PLACE_BYTES);
    for place in 1..=PLACES {
        let at = (bytes / PLACES * place).min(bytes).saturating_sub(PLACE_BYTES as u64);
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        text.clear();
        file.by_ref().take(PLACE_BYTES as u64).read_to_end(&mut text).map_err(failed)?;
        // Whole lines only.
        let mut lines = text.split(|byte| *byte == b'\n').skip(1).peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_some()
                && let Ok(line) = std::str::from_utf8(line)
                && weft_json::check(line).is_ok()
            {
                shape.see_text(line).map_err(|error| {
                    FilesError::data(input.path(), None, format!("a line at byte {at}: {error}"))
                })?;
            }
        }
    }
    Ok(())
}
