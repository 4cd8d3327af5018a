//! Functions of UUIDs: constructors from random numbers and from other values, and functions that take UUIDs apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, ListArray, StringViewArray,
    StructArray, TimestampMicrosecondArray, UInt32Array, UInt64Array, make_array,
};
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{
    DataFusionError, Result as DfResult, ScalarValue, exec_datafusion_err, plan_err,
};
use datafusion::functions::string::uuid;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::places::Places;
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
    /// The UUIDs of the texts at places within a value.
    Within,
    /// As [`Does::Within`], with NULL for what is none.
    WithinOrNull,
    /// The value, as one of texts.
    Unmarked,
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
/// The cast of a UUID to VARCHAR.
pub(super) static TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| named("uuid_text", Does::Text));
/// The cast of a UUID to BLOB.
pub(super) static BYTES: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("uuid_bytes", Does::Bytes));

/// What has UUIDs within its values as a value that has texts there.
static UNMARKED: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| named("uuids_unmarked", Does::Unmarked));

/// What an expression gives, with UUIDs made of its texts at some places; with `is_lenient`, what is none is NULL.
pub(super) fn made_at(places: &Places, expr: Expr, is_lenient: bool) -> Expr {
    let (name, does) = match (places.is_whole(), is_lenient) {
        (true, false) => return OF.call(vec![expr]),
        (true, true) => return OF_OR_NULL.call(vec![expr]),
        (false, false) => ("uuids_of", Does::Within),
        (false, true) => ("try_uuids_of", Does::WithinOrNull),
    };
    if places.is_empty() {
        return expr;
    }
    ScalarUDF::from(UuidFunction { places: places.clone(), ..function(name, does) })
        .call(vec![expr])
}

/// What an expression gives, without a mark of UUIDs within its values.
pub(super) fn unmarked(expr: Expr) -> Expr {
    UNMARKED.call(vec![expr])
}

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
    Arc::new(ScalarUDF::from(function(name, does)))
}

fn function(name: &'static str, does: Does) -> UuidFunction {
    let (aliases, signature) = match does {
        Does::Random => {
            let aliases = ["gen_random_uuid", "uuidv4"].map(str::to_owned).to_vec();
            (aliases, Signature::nullary(Volatility::Volatile))
        }
        Does::Timed => (Vec::new(), Signature::nullary(Volatility::Volatile)),
        _ => (Vec::new(), Signature::any(1, Volatility::Immutable)),
    };
    UuidFunction { name, aliases, does, places: Places::default(), signature }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct UuidFunction {
    name: &'static str,
    aliases: Vec<String>,
    does: Does,
    /// Where within its argument the texts are that become UUIDs.
    places: Places,
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

    fn return_type(&self, given: &[DataType]) -> DfResult<DataType> {
        Ok(match self.does {
            Does::Of | Does::OfOrNull | Does::Random | Does::Timed | Does::Text => {
                DataType::Utf8View
            }
            Does::Within | Does::WithinOrNull | Does::Unmarked => match given {
                [given] => self.places.with_texts(given),
                _ => return plan_err!("{} has one argument", self.name),
            },
            Does::Bytes => DataType::BinaryView,
            Does::Version => DataType::UInt32,
            Does::Time => DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        if let Some(given) = args.arg_fields.first() {
            let kind = given.data_type();
            let is_taken = match self.does {
                Does::Within | Does::WithinOrNull => self.places.are_texts(kind),
                Does::Unmarked => true,
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
            Does::Of
            | Does::Within
            | Does::WithinOrNull
            | Does::Unmarked
            | Does::Text
            | Does::Bytes
            | Does::Version => args.arg_fields.iter().any(|field| field.is_nullable()),
            Does::OfOrNull | Does::Time => true,
            Does::Random | Does::Timed => false,
        };
        let field = uuid_field(self.name).with_nullable(is_nullable);
        Ok(Arc::new(match self.does {
            Does::Of | Does::OfOrNull | Does::Random | Does::Timed => field,
            _ => {
                let given: Vec<DataType> =
                    args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
                let plain = field.with_metadata(Default::default());
                self.places.mark(plain.with_data_type(self.return_type(&given)?))
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
            does => match args.args.as_slice() {
                [ColumnarValue::Scalar(value)] => {
                    let computed = computed(does, &self.places, &value.to_array()?)?;
                    Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?))
                }
                [ColumnarValue::Array(values)] => {
                    Ok(ColumnarValue::Array(computed(does, &self.places, values)?))
                }
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

fn computed(does: Does, places: &Places, values: &ArrayRef) -> DfResult<ArrayRef> {
    let numbers = || numbers(values);
    Ok(match does {
        Does::Text => cast(values, &DataType::Utf8View)?,
        Does::Of => canonical_texts(values, false)?,
        Does::OfOrNull => canonical_texts(values, true)?,
        Does::Within => canonical_at(places, values, false)?,
        Does::WithinOrNull => canonical_at(places, values, true)?,
        Does::Unmarked => Arc::clone(values),
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

/// Values with UUIDs of the texts at some places. What no row has, such as the elements of a list that is NULL, is left out.
fn canonical_at(places: &Places, values: &ArrayRef, is_lenient: bool) -> DfResult<ArrayRef> {
    if places.is_whole() {
        return canonical_texts(values, is_lenient);
    }
    if places.is_empty() {
        return Ok(Arc::clone(values));
    }
    if let Some(structs) = values.as_struct_opt() {
        let fields = structs.fields().iter().zip(structs.columns()).enumerate();
        let columns = fields.map(|(number, (field, column))| {
            let column = match structs.nulls() {
                Some(nulls) => nullif(column, &BooleanArray::new(!nulls.inner(), None))?,
                None => Arc::clone(column),
            };
            let column = canonical_at(&places.within(number), &column, is_lenient)?;
            let field = field.as_ref().clone().with_data_type(column.data_type().clone());
            Ok((Arc::new(field), column))
        });
        let columns: Vec<(FieldRef, ArrayRef)> = columns.collect::<DfResult<_>>()?;
        let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let nulls = structs.nulls().cloned();
        return Ok(Arc::new(StructArray::try_new(fields.into(), columns, nulls)?));
    }
    let has_all = |list: &ListArray| {
        let (offsets, items) = (list.offsets(), list.values().len());
        let (first, last) = (offsets.first().copied(), offsets.last().copied());
        list.null_count() == 0 && first == Some(0) && last.map(|last| last as usize) == Some(items)
    };
    let values = match values.as_list_opt::<i32>() {
        Some(list) if has_all(list) => Arc::clone(values),
        _ => take(values, &UInt64Array::from_iter_values(0..values.len() as u64), None)?,
    };
    if let Some(list) = values.as_list_opt::<i32>() {
        let (item, offsets, items, nulls) = list.clone().into_parts();
        let items = canonical_at(&places.within(0), &items, is_lenient)?;
        let item = Arc::new(item.as_ref().clone().with_data_type(items.data_type().clone()));
        return Ok(Arc::new(ListArray::try_new(item, offsets, items, nulls)?));
    }
    let data = values.to_data();
    let [items] = data.child_data() else { return Ok(values) };
    let items = canonical_at(&places.within(0), &make_array(items.clone()), is_lenient)?;
    let data_type = places.with_texts(values.data_type());
    let made =
        data.into_builder().data_type(data_type).child_data(vec![items.to_data()]).build()?;
    Ok(make_array(made))
}

pub(super) fn no_uuid(text: &str) -> DataFusionError {
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
