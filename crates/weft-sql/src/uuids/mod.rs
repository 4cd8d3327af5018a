//! The type UUID. A value is a text in the canonical form, of lower-case digits with hyphens, whose order of bytes is that of
//! the UUIDs; the field's metadata says so ([`POSTGRES_TYPE`]), or where within a column's values UUIDs lie ([`WITHIN`]). Whatever becomes
//! a UUID passes [`parse`].

mod casts;
mod functions;
mod nodes;
mod places;

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};

pub(crate) use casts::{CHOICES, UuidCasts, compared_subquery, paired};
pub(crate) use functions::{gives_uuid, uuid_functions};
pub(crate) use places::{Places, WITHIN, shown, shown_rows, shown_schema};

use crate::postgres::POSTGRES_TYPE;

/// What the metadata calls the type.
const NAME: &str = "uuid";

/// Hexadecimal digits of a value.
const DIGITS: usize = 32;

/// Where the canonical form has hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Bytes of the canonical form.
const TEXT_BYTES: usize = DIGITS + HYPHENS.len();

/// A field of UUIDs, which may be NULL.
pub(crate) fn uuid_field(name: &str) -> Field {
    let metadata = HashMap::from([(POSTGRES_TYPE.to_owned(), NAME.to_owned())]);
    Field::new(name, DataType::Utf8View, true).with_metadata(metadata)
}

/// True if the field's values have UUIDs, or are UUIDs.
pub(crate) fn has_uuid(field: &Field) -> bool {
    !Places::of_field(field).is_empty()
}

/// True if the field's texts are UUIDs.
pub(crate) fn is_uuid(field: &Field) -> bool {
    field.data_type().is_string()
        && field.metadata().get(POSTGRES_TYPE).is_some_and(|name| name == NAME)
}

/// The number of a UUID: digits of either case, with or without hyphens between groups of four and braces around all of it, as
/// PostgreSQL reads them. `None` if the text is no UUID.
fn parse(text: &str) -> Option<u128> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let (mut value, mut digits, mut is_behind_hyphen) = (0_u128, 0, true);
    for byte in inner.unwrap_or(text).bytes() {
        if byte == b'-' {
            if is_behind_hyphen || digits % 4 != 0 || digits == DIGITS {
                return None;
            }
            is_behind_hyphen = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16).filter(|_| digits < DIGITS)?;
        value = (value << 4) | u128::from(digit);
        digits += 1;
        is_behind_hyphen = false;
    }
    (digits == DIGITS).then_some(value)
}

/// The canonical text of a UUID of this number.
fn written(value: u128) -> String {
    let digits = format!("{value:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// The 16 bytes of a UUID, the first digit's first; `None` if the text is none.
pub fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    parse(text).map(u128::to_be_bytes)
}

/// The canonical form of a UUID; `None` if the text is none.
pub(crate) fn canonical(text: &str) -> Option<String> {
    match is_canonical(text) {
        true => Some(text.to_owned()),
        false => parse(text).map(written),
    }
}

fn is_canonical(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match HYPHENS.contains(&at) {
        true => byte == b'-',
        false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == TEXT_BYTES && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANONICAL: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";

    #[test]
    fn forms_of_postgresql_are_read() {
        // The examples of PostgreSQL's manual.
        for text in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            CANONICAL,
        ] {
            assert_eq!(canonical(text).as_deref(), Some(CANONICAL), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_uuids() {
        for text in [
            "",
            "{}",
            "a0eebc99",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
            "-a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0e-ebc999c0b4ef8bb6d6bb9bd380a11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "ä0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
