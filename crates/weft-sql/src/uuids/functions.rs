//! Functions of UUIDs: constructors from random numbers and from other values, and functions that take UUIDs apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, StringViewArray};
use arrow::array::{TimestampMicrosecondArray, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{
    DataFusionError, Result as DfResult, ScalarValue, exec_datafusion_err, plan_err,
};
use datafusion::functions::string::uuid;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{is_canonical, parse, uuid_field, written};
use crate::types::{ZONE, field_type_name};

/// Characters of a text that is no UUID which its error shows.
const SHOWN_MAX: usize = 40;

/// Bits of a UUID of version 7 behind its milliseconds and its version, and behind the variant.
const TIME_SHIFT: u32 = 80;
const FRACTION_SHIFT: u32 = 64;
const VARIANT_SHIFT: u32 = 62;

/// Bits of the fraction of a millisecond.
const FRACTION_BITS: u32 = 12;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    /// The UUID of a text or of 16 bytes.
    Of,
    /// As [`Does::Of`], with NULL for what is none.
    OfOrNull,
    /// The UUID of each text of a list.
    OfList,
    OfListOrNull,
    /// A random UUID of version 4.
    Random,
    /// A UUID of version 7: of the time, greater than those before it.
    Timed,
    Text,
    Bytes,
    Version,
    Time,
}

/// The cast to UUID.
pub(super) static OF: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| named("uuid_of", Does::Of));
/// The cast to UUID that gives NULL for what is none.
pub(super) static OF_OR_NULL: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("try_uuid_of", Does::OfOrNull));
/// The cast of lists of texts to lists of UUIDs.
pub(super) static OF_LIST: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("uuids_of", Does::OfList));
/// As [`OF_LIST`], with NULL for elements that are none.
pub(super) static OF_LIST_OR_NULL: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("try_uuids_of", Does::OfListOrNull));
/// The cast of a UUID to VARCHAR.
pub(super) static TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| named("uuid_text", Does::Text));
/// The cast of a UUID to BLOB.
pub(super) static BYTES: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("uuid_bytes", Does::Bytes));

/// The functions that statements call.
pub(crate) fn uuid_functions() -> [Arc<ScalarUDF>; 4] {
    [
        named("uuid", Does::Random),
        named("uuidv7", Does::Timed),
        named("uuid_extract_version", Does::Version),
        named("uuid_extract_timestamp", Does::Time),
    ]
}

/// True for the names of functions that make UUIDs.
pub(crate) fn gives_uuid(function: &str) -> bool {
    ["uuid", "uuidv7", "uuidv4", "gen_random_uuid", "uuid_of"].contains(&function)
}

fn named(name: &'static str, does: Does) -> Arc<ScalarUDF> {
    let (aliases, signature) = match does {
        Does::Random => {
            let aliases = ["gen_random_uuid", "uuidv4"].map(str::to_owned).to_vec();
            (aliases, Signature::nullary(Volatility::Volatile))
        }
        Does::Timed => (Vec::new(), Signature::nullary(Volatility::Volatile)),
        _ => (Vec::new(), Signature::any(1, Volatility::Immutable)),
    };
    Arc::new(ScalarUDF::from(UuidFunction { name, aliases, does, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct UuidFunction {
    name: &'static str,
    aliases: Vec<String>,
    does: Does,
    signature: Signature,
}

impl ScalarUDFImpl for UuidFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match self.does {
            Does::Of | Does::OfOrNull | Does::Random | Does::Timed | Does::Text => {
                DataType::Utf8View
            }
            Does::OfList | Does::OfListOrNull => DataType::List(Arc::new(uuid_field("item"))),
            Does::Bytes => DataType::BinaryView,
            Does::Version => DataType::UInt32,
            Does::Time => DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        if let Some(given) = args.arg_fields.first() {
            let kind = given.data_type();
            let is_taken = match self.does {
                Does::OfList | Does::OfListOrNull => {
                    matches!(kind, DataType::List(_) | DataType::Null)
                }
                _ => kind.is_string() || is_binary(kind) || kind.is_null(),
            };
            if !is_taken {
                let kind = field_type_name(given);
                return match self.does {
                    Does::Version | Does::Time => {
                        plan_err!("{} takes a UUID, not {kind}", self.name)
                    }
                    _ => plan_err!("{kind} cannot be cast to UUID"),
                };
            }
        }
        let is_nullable = match self.does {
            Does::Of | Does::OfList | Does::Text | Does::Bytes | Does::Version => {
                args.arg_fields.iter().any(|field| field.is_nullable())
            }
            Does::OfOrNull | Does::OfListOrNull | Does::Time => true,
            Does::Random | Does::Timed => false,
        };
        let field = uuid_field(self.name).with_nullable(is_nullable);
        Ok(Arc::new(match self.does {
            Does::Of | Does::OfOrNull | Does::Random | Does::Timed => field,
            _ => {
                let plain = field.with_metadata(Default::default());
                plain.with_data_type(self.return_type(&[])?)
            }
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match self.does {
            Does::Random => Ok(ColumnarValue::Array(Arc::new(random(args)?))),
            Does::Timed => {
                let texts = random(args)?;
                let numbers = texts.iter().flatten().filter_map(parse);
                let texts = numbers.map(|random| Some(written(timed(random))));
                Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringViewArray>())))
            }
            // DataFusion leaves out the metadata of a list's items.
            does => match args.args.as_slice() {
                [ColumnarValue::Scalar(value)] => {
                    let computed = computed(does, &value.to_array()?)?;
                    Ok(ColumnarValue::Scalar(match computed.as_list_opt::<i32>() {
                        Some(list) => ScalarValue::List(Arc::new(list.clone())),
                        None => ScalarValue::try_from_array(&computed, 0)?,
                    }))
                }
                [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(computed(does, values)?)),
                _ => plan_err!("{} has one argument", self.name),
            },
        }
    }
}

fn is_binary(data_type: &DataType) -> bool {
    data_type.is_binary() || matches!(data_type, DataType::FixedSizeBinary(_))
}

/// Random UUIDs of version 4, from the system's source of random numbers.
fn random(args: ScalarFunctionArgs) -> DfResult<StringViewArray> {
    let rows = args.number_rows;
    let texts = uuid().invoke_with_args(args)?.into_array(rows)?;
    Ok(cast(&texts, &DataType::Utf8View)?.as_string_view().clone())
}

/// A UUID of version 7 with the random bits of another one: milliseconds since 1970 (48 bits), the version (4), the fraction of a
/// millisecond (12), the variant (2) and random bits. The time is later than that of all before it in this process.
fn timed(random: u128) -> u128 {
    /// Of the last UUID, in 1/4096 of a millisecond.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from((now.as_nanos() << FRACTION_BITS) / 1_000_000).unwrap_or(u64::MAX);
    let next = |last: u64| Some(now.max(last.saturating_add(1)));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
    let time = now.max(last.saturating_add(1));
    let (milliseconds, fraction) = (time >> FRACTION_BITS, time & ((1 << FRACTION_BITS) - 1));
    (u128::from(milliseconds) << TIME_SHIFT)
        | ((0x7000 | u128::from(fraction)) << FRACTION_SHIFT)
        | (0b10 << VARIANT_SHIFT)
        | (random & ((1 << VARIANT_SHIFT) - 1))
}

fn computed(does: Does, values: &ArrayRef) -> DfResult<ArrayRef> {
    let numbers = || numbers(values);
    Ok(match does {
        Does::Text => cast(values, &DataType::Utf8View)?,
        Does::Of => canonical_texts(values, false)?,
        Does::OfOrNull => canonical_texts(values, true)?,
        Does::OfList | Does::OfListOrNull => {
            let list = DataType::new_list(DataType::Utf8View, true);
            let lists = cast(values, &list)?;
            let (_, offsets, items, nulls) = lists.as_list::<i32>().clone().into_parts();
            let items = canonical_texts(&items, does == Does::OfListOrNull)?;
            let item = Arc::new(uuid_field("item"));
            Arc::new(arrow::array::ListArray::try_new(item, offsets, items, nulls)?)
        }
        Does::Bytes => {
            let bytes = numbers()?.into_iter().map(|number| number.map(u128::to_be_bytes));
            Arc::new(bytes.collect::<BinaryViewArray>())
        }
        Does::Version => {
            let version =
                |number: u128| ((number >> (FRACTION_SHIFT + FRACTION_BITS)) & 0xf) as u32;
            let has_version = |number: &u128| (number >> VARIANT_SHIFT) & 0b11 == 0b10;
            let versions = numbers()?.into_iter();
            let versions = versions.map(|number| number.filter(has_version).map(version));
            Arc::new(versions.collect::<UInt32Array>())
        }
        Does::Time => {
            let times = numbers()?.into_iter().map(|number| number.and_then(time_us));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone(ZONE))
        }
        Does::Random | Does::Timed => return plan_err!("a random UUID has no argument"),
    })
}

/// Microseconds since 1970-01-01 UTC at which a UUID of version 1 or 7 was made; `None` for others, which have no time.
fn time_us(number: u128) -> Option<i64> {
    /// 100 nanoseconds from 1582-10-15, where the times of version 1 begin, to 1970-01-01.
    const GREGORIAN: i64 = 122_192_928_000_000_000;
    if number >> VARIANT_SHIFT & 0b11 != 0b10 {
        return None;
    }
    match (number >> (FRACTION_SHIFT + FRACTION_BITS)) & 0xf {
        1 => {
            let (low, middle) = (number >> 96, (number >> TIME_SHIFT) & 0xffff);
            let high = (number >> FRACTION_SHIFT) & 0xfff;
            let ticks = i64::try_from((high << 48) | (middle << 32) | low).ok()?;
            Some((ticks - GREGORIAN).div_euclid(10))
        }
        7 => i64::try_from(number >> TIME_SHIFT).ok()?.checked_mul(1000),
        _ => None,
    }
}

/// The values, of which each is a UUID.
fn numbers(values: &ArrayRef) -> DfResult<Vec<Option<u128>>> {
    let texts = canonical_texts(values, false)?;
    Ok(texts.as_string_view().iter().map(|text| text.and_then(parse)).collect())
}

/// UUIDs of texts or of 16 bytes each; with `is_lenient`, what is none is NULL.
///
/// # Errors
/// The first value that is none, but with `is_lenient`.
fn canonical_texts(values: &ArrayRef, is_lenient: bool) -> DfResult<ArrayRef> {
    if is_binary(values.data_type()) {
        let bytes = cast(values, &DataType::BinaryView)?;
        let text = |bytes: Option<&[u8]>| match bytes.map(<[u8; 16]>::try_from) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(written(u128::from_be_bytes(bytes)))),
            Some(Err(_)) if is_lenient => Ok(None),
            Some(Err(_)) => Err(exec_datafusion_err!(
                "{} bytes are no UUID, which has 16",
                bytes.map_or(0, <[u8]>::len)
            )),
        };
        let texts = bytes.as_binary_view().iter().map(text);
        return Ok(Arc::new(texts.collect::<DfResult<StringViewArray>>()?));
    }
    let texts = cast(values, &DataType::Utf8View)?;
    if texts.as_string_view().iter().flatten().all(is_canonical) {
        return Ok(texts);
    }
    let text = |text: Option<&str>| match text.map(|text| (text, parse(text))) {
        None => Ok(None),
        Some((_, Some(number))) => Ok(Some(written(number))),
        Some((_, None)) if is_lenient => Ok(None),
        Some((text, None)) => Err(no_uuid(text)),
    };
    let canonical = texts.as_string_view().iter().map(text);
    Ok(Arc::new(canonical.collect::<DfResult<StringViewArray>>()?))
}

fn no_uuid(text: &str) -> DataFusionError {
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    exec_datafusion_err!(
        "'{shown}{more}' is no UUID, which has 32 hexadecimal digits, as in \
         a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_7_grows() {
        let made: Vec<u128> = (0..10_000).map(timed).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
        let text = written(made[0]);
        assert_eq!((&text[14..15], &text[19..20]), ("7", "8"));
        let since = time_us(made[0]).unwrap() - chrono::Utc::now().timestamp_micros();
        assert!(since.abs() < 60_000_000, "{since} µs");
    }

    #[test]
    fn times_are_those_of_postgresql() {
        // SELECT uuid_extract_timestamp('C232AB00-9414-11EC-B3C8-9F6BDECED846'), of version 1.
        let of = |text| time_us(parse(text).unwrap());
        assert_eq!(of("C232AB00-9414-11EC-B3C8-9F6BDECED846"), Some(1_645_557_742_000_000));
        assert_eq!(of("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), Some(1_645_557_742_000_000));
        assert_eq!(of("919108f7-52d1-4320-9bac-f847db4148a8"), None);
    }
}
