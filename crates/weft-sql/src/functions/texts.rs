//! Functions of texts that DataFusion lacks: graphemes, accents, similarity, URLs, paths, bars and sizes in bytes.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryViewArray, Float64Array, Int64Array, StringViewArray, UInt64Array,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;
use sha1::{Digest, Sha1};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use super::scalar::{Call, Kind, Rows, Scalar, Types, gives};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![
        Scalar::function(&["strip_accents"], text_to_text, |rows| {
            each_text(rows, |text| {
                Ok(Some(text.nfd().filter(|char| !is_combining_mark(*char)).nfc().collect()))
            })
        }),
        Scalar::function(&["nfc_normalize"], text_to_text, |rows| {
            each_text(rows, |text| Ok(Some(text.nfc().collect())))
        }),
        Scalar::function(&["url_encode"], text_to_text, |rows| {
            each_text(rows, |text| Ok(Some(url_encoded(text))))
        }),
        Scalar::function(&["url_decode"], text_to_text, |rows| each_text(rows, url_decoded)),
        Scalar::function(
            &["length_grapheme"],
            |call| gives(call.takes(&[Kind::Text]), DataType::Int64),
            |rows| {
                let texts = rows.column::<StringViewArray>(0)?;
                rows.each::<i64, Int64Array>(|row| {
                    let count = texts.get(row).map(|text| text.graphemes(true).count());
                    Ok(count.and_then(|count| i64::try_from(count).ok()))
                })
            },
        ),
        Scalar::function(&["left_grapheme"], text_and_count, |rows| {
            end_of_text(rows, |parts, count| parts[..count].concat())
        }),
        Scalar::function(&["right_grapheme"], text_and_count, |rows| {
            end_of_text(rows, |parts, count| parts[parts.len() - count..].concat())
        }),
        Scalar::function(
            &["substring_grapheme"],
            |call| {
                let kinds = [Kind::Text, Kind::Integer, Kind::Integer];
                gives(call.takes_some(&kinds, 1), DataType::Utf8View)
            },
            substring,
        ),
        Scalar::function(
            &["bar"],
            |call| {
                let kinds = [Kind::Double, Kind::Double, Kind::Double, Kind::Double];
                gives(call.takes_some(&kinds, 1), DataType::Utf8View)
            },
            bar,
        ),
    ];
    functions.push(Scalar::function(
        &["sha1"],
        |call| gives(call.takes(&[Kind::Bytes]), DataType::Utf8View),
        |rows| {
            let values = rows.column::<BinaryViewArray>(0)?;
            rows.each::<String, StringViewArray>(|row| {
                Ok(values.get(row).map(|bytes| {
                    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
                }))
            })
        },
    ));
    functions.extend(similarities());
    functions.extend(sizes());
    functions
}

pub(super) fn text_to_text(call: &Call<'_>) -> DfResult<Types> {
    gives(call.takes(&[Kind::Text]), DataType::Utf8View)
}

fn text_and_count(call: &Call<'_>) -> DfResult<Types> {
    gives(call.takes(&[Kind::Text, Kind::Integer]), DataType::Utf8View)
}

pub(super) fn each_text(
    rows: &Rows<'_>,
    result: fn(&str) -> DfResult<Option<String>>,
) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    rows.each::<String, StringViewArray>(|row| match texts.get(row) {
        Some(text) => result(text),
        None => Ok(None),
    })
}

fn url_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// What is no escape stays; bytes that are no text are an error.
fn url_decoded(text: &str) -> DfResult<Option<String>> {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    match String::from_utf8(decoded) {
        Ok(decoded) => Ok(Some(decoded)),
        Err(_) => exec_err!("url_decode: '{text}' does not stand for text"),
    }
}

/// As many graphemes of an end as asked for; of a negative number, all but as many.
fn end_of_text(rows: &Rows<'_>, end: fn(&[&str], usize) -> String) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let counts = rows.column::<Int64Array>(1)?;
    rows.each::<String, StringViewArray>(|row| {
        let (Some(text), Some(count)) = (texts.get(row), counts.get(row)) else { return Ok(None) };
        let parts: Vec<&str> = text.graphemes(true).collect();
        let length = parts.len() as u64;
        let taken = match count {
            0.. => length.min(count.unsigned_abs()),
            _ => length.saturating_sub(count.unsigned_abs()),
        };
        Ok(Some(end(&parts, usize::try_from(taken).unwrap_or_default())))
    })
}

/// Graphemes from a place on, which counts from 1, or from the end if it is negative.
fn substring(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let firsts = rows.column::<Int64Array>(1)?;
    let lengths = rows.optional::<Int64Array>(2)?;
    rows.each::<String, StringViewArray>(|row| {
        let length = match &lengths {
            Some(lengths) => lengths.get(row),
            None => Some(i64::MAX),
        };
        let (Some(text), Some(first), Some(length)) = (texts.get(row), firsts.get(row), length)
        else {
            return Ok(None);
        };
        let parts: Vec<&str> = text.graphemes(true).collect();
        let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
        let start = if first < 0 { count.saturating_add(first) } else { first.saturating_sub(1) };
        let end = start.saturating_add(length);
        let [start, end] = [start.min(end), start.max(end)]
            .map(|bound| usize::try_from(bound.clamp(0, count)).unwrap_or_default());
        Ok(Some(parts[start..end].concat()))
    })
}

/// Widest bar, in characters.
const BAR_WIDTH_MAX: f64 = 1000.0;

/// A bar of blocks whose length says where a number lies between two others.
fn bar(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let [numbers, least, most] = [0, 1, 2].map(|at| rows.column::<Float64Array>(at));
    let (numbers, least, most) = (numbers?, least?, most?);
    let widths = rows.optional::<Float64Array>(3)?;
    rows.each::<String, StringViewArray>(|row| {
        let width = match &widths {
            Some(widths) => widths.get(row),
            None => Some(80.0),
        };
        let (Some(number), Some(least), Some(most), Some(width)) =
            (numbers.get(row), least.get(row), most.get(row), width)
        else {
            return Ok(None);
        };
        if !(1.0..=BAR_WIDTH_MAX).contains(&width) {
            return exec_err!("bar: the width is from 1 to {BAR_WIDTH_MAX}, not {width}");
        }
        if !number.is_finite() || !least.is_finite() || most.is_nan() || most <= least {
            return exec_err!("bar: {number} cannot be shown between {least} and {most}");
        }
        let share = ((number - least) / (most - least)).clamp(0.0, 1.0);
        // Both are at most 8 times the width.
        let eighths = (share * width * 8.0) as usize;
        let (whole, part) = (eighths / 8, PARTS[eighths % 8]);
        let mut bar = "█".repeat(whole);
        bar.push_str(part);
        let shown = whole + usize::from(!part.is_empty());
        bar.push_str(&" ".repeat((width as usize).saturating_sub(shown)));
        Ok(Some(bar))
    })
}

fn similarities() -> [Arc<ScalarUDF>; 5] {
    let distance: fn(&Call<'_>) -> DfResult<Types> =
        |call| gives(call.takes(&[Kind::Text; 2]), DataType::Int64);
    let likeness: fn(&Call<'_>) -> DfResult<Types> = |call| {
        gives(call.takes_some(&[Kind::Text, Kind::Text, Kind::Double], 1), DataType::Float64)
    };
    [
        Scalar::function(&["damerau_levenshtein"], distance, |rows| {
            two_texts::<i64, Int64Array>(rows, |left, right| {
                Ok(i64::try_from(strsim::damerau_levenshtein(left, right)).unwrap_or(i64::MAX))
            })
        }),
        Scalar::function(&["hamming", "mismatches"], distance, |rows| {
            two_texts::<i64, Int64Array>(rows, |left, right| {
                if left.len() != right.len() || left.is_empty() {
                    return exec_err!(
                        "hamming: '{left}' and '{right}' do not have the same length"
                    );
                }
                let differ = left.bytes().zip(right.bytes()).filter(|(left, right)| left != right);
                Ok(i64::try_from(differ.count()).unwrap_or(i64::MAX))
            })
        }),
        Scalar::function(&["jaccard"], likeness, |rows| {
            two_texts::<f64, Float64Array>(rows, |left, right| {
                if left.is_empty() || right.is_empty() {
                    return exec_err!("jaccard: a text is empty");
                }
                let [left, right] = [left, right].map(|text| text.bytes().collect::<HashSet<_>>());
                let shared = left.intersection(&right).count() as f64;
                Ok(shared / left.union(&right).count() as f64)
            })
        }),
        Scalar::function(&["jaro_similarity"], likeness, |rows| bounded(rows, strsim::jaro)),
        Scalar::function(&["jaro_winkler_similarity"], likeness, |rows| {
            bounded(rows, strsim::jaro_winkler)
        }),
    ]
}

fn two_texts<T, A: datafusion::arrow::array::Array + FromIterator<Option<T>> + 'static>(
    rows: &Rows<'_>,
    result: fn(&str, &str) -> DfResult<T>,
) -> DfResult<ArrayRef> {
    let (left, right) = (rows.column::<StringViewArray>(0)?, rows.column::<StringViewArray>(1)?);
    rows.each::<T, A>(|row| match (left.get(row), right.get(row)) {
        (Some(left), Some(right)) => result(left, right).map(Some),
        _ => Ok(None),
    })
}

/// A likeness, which is 0 where it is below the third argument.
fn bounded(rows: &Rows<'_>, likeness: fn(&str, &str) -> f64) -> DfResult<ArrayRef> {
    let (left, right) = (rows.column::<StringViewArray>(0)?, rows.column::<StringViewArray>(1)?);
    let bounds = rows.optional::<Float64Array>(2)?;
    rows.each::<f64, Float64Array>(|row| {
        let bound = match &bounds {
            Some(bounds) => bounds.get(row),
            None => Some(0.0),
        };
        let (Some(left), Some(right), Some(bound)) = (left.get(row), right.get(row), bound) else {
            return Ok(None);
        };
        let likeness = likeness(left, right);
        Ok(Some(if likeness < bound { 0.0 } else { likeness }))
    })
}

fn sizes() -> [Arc<ScalarUDF>; 3] {
    let of_size: fn(&Call<'_>) -> DfResult<Types> =
        |call| gives(call.takes(&[Kind::Integer]), DataType::Utf8View);
    [
        Scalar::function(&["format_bytes", "formatreadablesize"], of_size, |rows| {
            each_size(rows, 1024.0, &["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
        }),
        Scalar::function(&["formatreadabledecimalsize"], of_size, |rows| {
            each_size(rows, 1000.0, &["bytes", "kB", "MB", "GB", "TB", "PB", "EB"])
        }),
        Scalar::function(
            &["parse_formatted_bytes"],
            |call| gives(call.takes(&[Kind::Text]), DataType::UInt64),
            |rows| {
                let texts = rows.column::<StringViewArray>(0)?;
                rows.each::<u64, UInt64Array>(|row| texts.get(row).map(bytes_of).transpose())
            },
        ),
    ]
}

fn each_size(rows: &Rows<'_>, step: f64, units: &[&str]) -> DfResult<ArrayRef> {
    let sizes = rows.column::<Int64Array>(0)?;
    rows.each::<String, StringViewArray>(|row| {
        let Some(size) = sizes.get(row) else { return Ok(None) };
        let sign = if size < 0 { "-" } else { "" };
        let bytes = size.unsigned_abs();
        if (bytes as f64) < step {
            let unit = if bytes == 1 { "byte" } else { units[0] };
            return Ok(Some(format!("{sign}{bytes} {unit}")));
        }
        let (mut size, mut unit) = (bytes as f64, 0);
        while size >= step && unit + 1 < units.len() {
            size /= step;
            unit += 1;
        }
        // Digits are cut, not rounded.
        Ok(Some(format!("{sign}{:.1} {}", (size * 10.0).floor() / 10.0, units[unit])))
    })
}

fn bytes_of(text: &str) -> DfResult<u64> {
    let text = text.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let factor = match unit.trim().to_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000_u64,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1_u64 << 40,
        _ => return exec_err!("parse_formatted_bytes: '{text}' is not a size, as 16 KiB is"),
    };
    match number.parse::<f64>() {
        // Sizes are far from what a float cannot hold.
        Ok(number) => Ok((number * factor as f64) as u64),
        Err(_) => exec_err!("parse_formatted_bytes: '{text}' is not a size, as 16 KiB is"),
    }
}
