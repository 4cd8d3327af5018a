//! Casts of timestamps: DataFusion writes them with a T, and cuts off the digits that a lower precision lacks.
//!
//! A timestamp is text with a space before the time, and without zeros at the end of the fraction: `2000-02-29 23:59:59.5`;
//! one with a time zone has its offset behind. To a lower precision it is rounded, half away from 1970, as in DuckDB. Text
//! that is cast to a timestamp may lack the seconds.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, StringViewArray, StringViewBuilder, new_null_array,
};
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, concat};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// Puts functions into casts from and to timestamps. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct TimestampCasts {
    text: Arc<ScalarUDF>,
    try_text: Arc<ScalarUDF>,
    with_seconds: Arc<ScalarUDF>,
    whole: [Arc<ScalarUDF>; 3],
}

impl TimestampCasts {
    pub(crate) fn new() -> TimestampCasts {
        let function = |kind| Arc::new(ScalarUDF::from(Function::new(kind)));
        let whole = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond];
        TimestampCasts {
            text: function(Kind::Text { is_try: false }),
            try_text: function(Kind::Text { is_try: true }),
            with_seconds: function(Kind::WithSeconds),
            whole: whole.map(|unit| function(Kind::Whole(unit))),
        }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let (inner, to, is_try) = match &expr {
            Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
            _ => return Ok(Transformed::no(expr)),
        };
        // A parameter may have no type yet.
        let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
        let Some(converted) = self.converted(inner, &from, to, is_try) else {
            return Ok(Transformed::no(expr));
        };
        let expr = match expr {
            Expr::Cast(Cast { field, .. }) => Expr::Cast(Cast { expr: Box::new(converted), field }),
            Expr::TryCast(TryCast { field, .. }) => {
                Expr::TryCast(TryCast { expr: Box::new(converted), field })
            }
            other => other,
        };
        Ok(Transformed::yes(expr))
    }

    /// What is cast instead; `None` if the cast stays as it is.
    fn converted(
        &self,
        inner: &Expr,
        from: &DataType,
        to: &DataType,
        is_try: bool,
    ) -> Option<Expr> {
        match (from, to) {
            (DataType::Timestamp(..), to) if to.is_string() => {
                let text = if is_try { &self.try_text } else { &self.text };
                Some(text.call(vec![inner.clone()]))
            }
            (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => {
                let whole = self.whole_of(*to).filter(|_| per_second(*from) > per_second(*to))?;
                Some(whole.call(vec![inner.clone()]))
            }
            (from, DataType::Timestamp(unit, zone)) if from.is_string() => {
                let text = self.with_seconds(inner);
                let exact = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                let whole = self.whole_of(*unit).filter(|_| *unit != TimeUnit::Microsecond);
                let Some(whole) = whole else { return text };
                let text = Box::new(text.unwrap_or_else(|| inner.clone()));
                Some(whole.call(vec![match is_try {
                    true => Expr::TryCast(TryCast::new(text, exact)),
                    false => Expr::Cast(Cast::new(text, exact)),
                }]))
            }
            _ => None,
        }
    }

    /// The function that rounds to a unit; `None` for the smallest.
    fn whole_of(&self, unit: TimeUnit) -> Option<&ScalarUDF> {
        let [seconds, milliseconds, microseconds] = &self.whole;
        match unit {
            TimeUnit::Second => Some(seconds),
            TimeUnit::Millisecond => Some(milliseconds),
            TimeUnit::Microsecond => Some(microseconds),
            TimeUnit::Nanosecond => None,
        }
    }

    /// Text with seconds; `None` for a constant that has them.
    fn with_seconds(&self, text: &Expr) -> Option<Expr> {
        let Expr::Literal(value, _) = text else {
            return Some(self.with_seconds.call(vec![text.clone()]));
        };
        match with_seconds(value.try_as_str().flatten()?) {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(Expr::Literal(ScalarValue::Utf8(Some(text)), None)),
        }
    }
}

impl AnalyzerRule for TimestampCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "timestamp_casts"
    }
}

/// What a [`Function`] makes of its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// The text of a timestamp; of one beyond the calendar, nothing if it `is_try`, or an error.
    Text { is_try: bool },
    /// Text of which a timestamp is to be read, with seconds.
    WithSeconds,
    /// The timestamp of the same type that is nearest and has whole units.
    Whole(TimeUnit),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    signature: Signature,
}

impl Function {
    fn new(kind: Kind) -> Function {
        Function { kind, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Text { is_try: false } => "timestamp_text",
            Kind::Text { is_try: true } => "try_timestamp_text",
            Kind::WithSeconds => "text_with_seconds",
            Kind::Whole(TimeUnit::Second) => "whole_seconds",
            Kind::Whole(TimeUnit::Millisecond) => "whole_milliseconds",
            Kind::Whole(TimeUnit::Microsecond) => "whole_microseconds",
            Kind::Whole(TimeUnit::Nanosecond) => "whole_nanoseconds",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match (self.kind, types) {
            (Kind::Text { .. } | Kind::WithSeconds, _) => Ok(DataType::Utf8View),
            (Kind::Whole(_), [timestamp @ DataType::Timestamp(..)]) => Ok(timestamp.clone()),
            (Kind::Whole(_), _) => plan_err!("{} takes a timestamp", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |values| match self.kind {
            Kind::Text { is_try } => texts(values, is_try),
            Kind::WithSeconds => with_all_seconds(values),
            Kind::Whole(unit) => rounded(values, unit),
        })
    }
}

/// The texts of timestamps, as `Utf8View`.
///
/// # Errors
/// If a timestamp is beyond the calendar.
pub(crate) fn timestamp_texts(timestamps: &ArrayRef) -> DfResult<ArrayRef> {
    texts(timestamps, false)
}

/// The texts of timestamps; with `is_try`, one beyond the calendar has none.
fn texts(timestamps: &ArrayRef, is_try: bool) -> DfResult<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let iso = |timestamps: &ArrayRef| cast_with_options(timestamps, &DataType::Utf8, &options);
    let texts = match iso(timestamps) {
        // Arrow fails for a single one, even if it may not: each by itself.
        Err(_) if is_try => {
            let each = (0..timestamps.len()).map(|row| match iso(&timestamps.slice(row, 1)) {
                Ok(text) => text,
                Err(_) => new_null_array(&DataType::Utf8, 1),
            });
            let each: Vec<ArrayRef> = each.collect();
            let each: Vec<&dyn Array> = each.iter().map(AsRef::as_ref).collect();
            concat(&each)?
        }
        texts => texts?,
    };
    let mut written = StringViewBuilder::with_capacity(texts.len());
    let mut text = String::new();
    for iso in texts.as_string::<i32>() {
        match iso {
            Some(iso) => {
                text.clear();
                write(iso, &mut text);
                written.append_value(&text);
            }
            None => written.append_null(),
        }
    }
    Ok(Arc::new(written.finish()))
}

/// Writes what Arrow gives as `2000-02-29T23:59:59.500Z`.
fn write(iso: &str, into: &mut String) {
    let Some((date, rest)) = iso.split_once('T') else {
        into.push_str(iso);
        return;
    };
    let (time, zone) = rest.split_at(rest.find(['Z', '+', '-']).unwrap_or(rest.len()));
    let time = match time.contains('.') {
        true => time.trim_end_matches('0').trim_end_matches('.'),
        false => time,
    };
    into.push_str(date);
    into.push(' ');
    into.push_str(time);
    into.push_str(if zone == "Z" { "+00:00" } else { zone });
}

/// Texts of timestamps, as `Utf8View`, with the seconds that they lack.
pub(crate) fn with_all_seconds(texts: &ArrayRef) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let views = texts.as_string_view();
    if !views.iter().flatten().any(lacks_seconds) {
        return Ok(texts);
    }
    let complete: StringViewArray = views.iter().map(|text| text.map(with_seconds)).collect();
    Ok(Arc::new(complete))
}

/// Where the seconds are in `2000-02-29 23:59:59`, with the colon before them.
const SECONDS_AT: usize = 16;

/// True of `2000-02-29 23:59`, and whatever offset follows.
fn lacks_seconds(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_time = matches!(bytes.get(11..SECONDS_AT), Some([a, b, b':', c, d])
        if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()));
    is_time && matches!(bytes.get(SECONDS_AT), None | Some(b' ' | b'+' | b'-' | b'Z' | b'z'))
}

fn with_seconds(text: &str) -> Cow<'_, str> {
    match text.split_at_checked(SECONDS_AT) {
        Some((time, zone)) if lacks_seconds(text) => Cow::Owned(format!("{time}:00{zone}")),
        _ => Cow::Borrowed(text),
    }
}

/// How many of a unit a second has.
fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Timestamps rounded to whole units that are larger than theirs.
fn rounded(timestamps: &ArrayRef, to: TimeUnit) -> DfResult<ArrayRef> {
    let data_type = timestamps.data_type();
    let DataType::Timestamp(unit, _) = data_type else {
        return plan_err!("only timestamps are rounded");
    };
    let step = per_second(*unit) / per_second(to);
    if step <= 1 {
        return Ok(Arc::clone(timestamps));
    }
    let numbers = cast(timestamps, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let nearest: ArrayRef =
        Arc::new(unary::<_, _, Int64Type>(numbers, |number| nearest(number, step)));
    Ok(cast(&nearest, data_type)?)
}

/// The nearest multiple of `step`; half of it is rounded away from zero.
fn nearest(number: i64, step: i64) -> i64 {
    let rest = number % step;
    let whole = number - rest;
    match rest.abs() >= step / 2 {
        // What would be beyond the last timestamp stays.
        true => whole.checked_add(step * rest.signum()).unwrap_or(whole),
        false => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_as_in_sql() {
        for (iso, expected) in [
            ("2000-02-29T23:59:59.500", "2000-02-29 23:59:59.5"),
            ("2000-02-29T23:59:00", "2000-02-29 23:59:00"),
            ("2000-02-29T23:59:59.000100Z", "2000-02-29 23:59:59.0001+00:00"),
            ("-0044-03-15T10:00:00-05:30", "-0044-03-15 10:00:00-05:30"),
        ] {
            let mut text = String::new();
            write(iso, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn half_is_rounded_away_from_zero() {
        for (number, expected) in [(14, 10), (15, 20), (-14, -10), (-15, -20), (0, 0), (-1, 0)] {
            assert_eq!(nearest(number, 10), expected, "{number}");
        }
        assert_eq!(nearest(i64::MAX, 1_000), i64::MAX - i64::MAX % 1_000);
    }

    #[test]
    fn seconds_are_added_where_they_lack() {
        assert_eq!(with_seconds("2024-01-01 10:11"), "2024-01-01 10:11:00");
        assert_eq!(with_seconds("2024-01-01T10:11+02"), "2024-01-01T10:11:00+02");
        for complete in ["2024-01-01 10:11:12", "2024-01-01", "2024-01-01 1011", "äöüäöüäöü"]
        {
            assert!(matches!(with_seconds(complete), Cow::Borrowed(_)), "{complete}");
        }
    }
}
