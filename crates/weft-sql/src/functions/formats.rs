//! `format('{} is {:.2f}', x, y)` and `printf('%s is %.2f', x, y)`: values in texts, as DuckDB and C format them.
//!
//! Both have one way to say how a value is written ([`Spec`]): a width and where the value stands in it, a sign, a separator
//! of thousands, digits behind the point, and a letter for the form.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::scalar::{Call, Kind, Rows, Scalar, Types, gives};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["format"], types, |rows| each(rows, formatted)),
        Scalar::function(&["printf"], types, |rows| each(rows, printed)),
    ]
}

/// Widest value, and most digits behind the point.
const WIDTH_MAX: usize = 10_000;

fn types(call: &Call<'_>) -> DfResult<Types> {
    let format = Call { name: call.name, types: &call.types[..call.types.len().min(1)] };
    let mut arguments = format.takes(&[Kind::Text])?;
    arguments.extend(call.types[1..].iter().map(|given| match given {
        DataType::Boolean => DataType::Boolean,
        // More digits than a decimal has, no integer type has.
        integer if integer.is_integer() => DataType::Decimal128(38, 0),
        DataType::Decimal128(38, 0) => DataType::Decimal128(38, 0),
        number if number.is_numeric() => DataType::Float64,
        _ => DataType::Utf8View,
    }));
    gives(Ok(arguments), DataType::Utf8View)
}

/// A value that is formatted.
#[derive(Clone, Copy)]
enum Value<'a> {
    Integer(i128),
    Float(f64),
    Truth(bool),
    Text(&'a str),
}

type Format = fn(&str, &[Value<'_>]) -> Result<String, String>;

/// A text for each row, NULL if the format or a value is.
fn each(rows: &Rows<'_>, format: Format) -> DfResult<ArrayRef> {
    let formats = rows.column::<StringViewArray>(0)?;
    let value = |argument: usize, row: usize| {
        let argument = &rows.arguments[argument];
        let at = argument.known(row)?;
        let values = &argument.values;
        Some(match values.data_type() {
            DataType::Boolean => Value::Truth(values.as_boolean().value(at)),
            DataType::Decimal128(..) => {
                Value::Integer(values.as_primitive::<Decimal128Type>().value(at))
            }
            DataType::Float64 => Value::Float(values.as_primitive::<Float64Type>().value(at)),
            _ => Value::Text(values.as_string_view().value(at)),
        })
    };
    rows.each::<String, StringViewArray>(|row| {
        let values: Option<Vec<Value<'_>>> =
            (1..rows.arguments.len()).map(|argument| value(argument, row)).collect();
        let (Some(text), Some(values)) = (formats.get(row), values) else { return Ok(None) };
        match format(text, &values) {
            Ok(text) => Ok(Some(text)),
            Err(error) => exec_err!("{}('{text}', …): {error}", rows.name),
        }
    })
}

/// Where a value stands in its width.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Align {
    /// Texts to the left, numbers to the right.
    #[default]
    ByType,
    Left,
    Middle,
    Right,
    /// To the right, with what fills the width behind the sign.
    BehindSign,
}

/// How a value is written.
#[derive(Clone, Copy, Default)]
struct Spec {
    fill: Option<char>,
    align: Align,
    /// What a number that is not negative begins with.
    sign: Option<char>,
    shows_base: bool,
    width: usize,
    separator: Option<char>,
    precision: Option<usize>,
    form: Option<char>,
}

/// Characters of a format.
type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn formatted(format: &str, values: &[Value<'_>]) -> Result<String, String> {
    let (mut text, mut next, mut chars) = (String::new(), 0, format.chars().peekable());
    while let Some(char) = chars.next() {
        match char {
            '{' if chars.next_if_eq(&'{').is_some() => text.push('{'),
            '}' if chars.next_if_eq(&'}').is_some() => text.push('}'),
            '}' => return Err("a } stands alone: write }} for one".to_owned()),
            '{' => {
                let place = take_number(&mut chars)?;
                let place = place.unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                let spec = match chars.next_if_eq(&':') {
                    Some(_) => take_spec(&mut chars)?,
                    None => Spec::default(),
                };
                if chars.next() != Some('}') {
                    return Err("a { is not closed, or has a form that is unknown".to_owned());
                }
                text.push_str(&spec.write(value_at(values, place)?)?);
            }
            other => text.push(other),
        }
    }
    Ok(text)
}

fn printed(format: &str, values: &[Value<'_>]) -> Result<String, String> {
    let (mut text, mut next, mut chars) = (String::new(), 0, format.chars().peekable());
    while let Some(char) = chars.next() {
        if char != '%' {
            text.push(char);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut spec = Spec { align: Align::Right, ..Spec::default() };
        while let Some(flag) = chars.next_if(|char| "-+ #0,'_".contains(*char)) {
            match flag {
                '-' => spec.align = Align::Left,
                '+' | ' ' => spec.sign = Some(flag),
                '#' => spec.shows_base = true,
                '0' if spec.align == Align::Right => {
                    spec.align = Align::BehindSign;
                    spec.fill = Some('0');
                }
                ',' | '\'' | '_' => spec.separator = Some(if flag == '\'' { ',' } else { flag }),
                _ => {}
            }
        }
        spec.width = take_number(&mut chars)?.unwrap_or_default();
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(take_number(&mut chars)?.unwrap_or_default());
        }
        while chars.next_if(|char| "hlLjzt".contains(*char)).is_some() {}
        spec.form = match chars.next() {
            Some('i' | 'u') => Some('d'),
            Some(form) if FORMS.contains(form) => Some(form),
            Some(other) => return Err(format!("%{other} is unknown")),
            None => return Err("a % stands at the end: write %% for one".to_owned()),
        };
        text.push_str(&spec.write(value_at(values, next)?)?);
        next += 1;
    }
    Ok(text)
}

/// The letters of forms.
const FORMS: &str = "bBcdeEfFgGosxX%";

fn value_at<'a>(values: &[Value<'a>], place: usize) -> Result<Value<'a>, String> {
    let missing = || format!("there is no value {}, only {}", place + 1, values.len());
    values.get(place).copied().ok_or_else(missing)
}

fn take_number(chars: &mut Chars<'_>) -> Result<Option<usize>, String> {
    let mut number: Option<usize> = None;
    while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
        chars.next();
        let next = number.unwrap_or_default() * 10 + digit as usize;
        if next > WIDTH_MAX {
            return Err(format!("a width is more than {WIDTH_MAX}"));
        }
        number = Some(next);
    }
    Ok(number)
}

/// What stands behind a colon: `[[fill]align][sign][#][0][width][,][.precision][form]`.
fn take_spec(chars: &mut Chars<'_>) -> Result<Spec, String> {
    let align = |char: &char| match char {
        '<' => Some(Align::Left),
        '^' => Some(Align::Middle),
        '>' => Some(Align::Right),
        '=' => Some(Align::BehindSign),
        _ => None,
    };
    let mut spec = Spec::default();
    let mut ahead = chars.clone();
    let (first, second) = (ahead.next(), ahead.next());
    if let (Some(fill), Some(side)) = (first, second.as_ref().and_then(align)) {
        (spec.fill, spec.align) = (Some(fill), side);
        chars.next();
        chars.next();
    } else if let Some(side) = first.as_ref().and_then(align) {
        spec.align = side;
        chars.next();
    }
    spec.sign = chars.next_if(|char| "+- ".contains(*char)).filter(|sign| *sign != '-');
    spec.shows_base = chars.next_if_eq(&'#').is_some();
    if chars.next_if_eq(&'0').is_some() {
        spec.fill = spec.fill.or(Some('0'));
        if spec.align == Align::ByType {
            spec.align = Align::BehindSign;
        }
    }
    spec.width = take_number(chars)?.unwrap_or_default();
    spec.separator = chars.next_if(|char| ",_'".contains(*char));
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(take_number(chars)?.ok_or("digits are missing behind a point")?);
    }
    spec.form = chars.next_if(|char| FORMS.contains(*char));
    Ok(spec)
}

impl Spec {
    fn write(&self, value: Value<'_>) -> Result<String, String> {
        let wrong = |what: &str| match self.form {
            Some(form) => Err(format!("the form {form} is not for {what}")),
            None => Err(format!("{what} cannot be written so")),
        };
        match (value, self.form) {
            (Value::Text(text), None | Some('s')) => {
                let shown = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                Ok(self.padded(String::new(), shown, Align::Left))
            }
            (Value::Text(_), _) => wrong("a text"),
            (Value::Truth(truth), None | Some('s')) => {
                Ok(self.padded(String::new(), truth.to_string(), Align::Left))
            }
            (Value::Truth(truth), _) => self.write(Value::Integer(i128::from(truth))),
            (Value::Integer(number), None | Some('d' | 's' | 'b' | 'B' | 'o' | 'x' | 'X')) => {
                Ok(self.integer(number))
            }
            (Value::Integer(number), Some('c')) => {
                match u32::try_from(number).ok().and_then(char::from_u32) {
                    Some(char) => Ok(self.padded(String::new(), char.to_string(), Align::Left)),
                    None => Err(format!("{number} is the number of no character")),
                }
            }
            // The nearest float is what is asked for.
            (Value::Integer(number), _) => self.write(Value::Float(number as f64)),
            (Value::Float(number), None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 's')) => {
                Ok(self.float(number))
            }
            (Value::Float(_), _) => wrong("a number with a fraction: cast it to BIGINT"),
        }
    }

    fn sign(&self, is_negative: bool) -> String {
        if is_negative { "-".to_owned() } else { self.sign.map(String::from).unwrap_or_default() }
    }

    fn integer(&self, number: i128) -> String {
        let size = number.unsigned_abs();
        let (base, digits) = match self.form {
            Some('b' | 'B') => ("0b", format!("{size:b}")),
            Some('o') => ("0", format!("{size:o}")),
            Some('x') => ("0x", format!("{size:x}")),
            Some('X') => ("0X", format!("{size:X}")),
            _ => ("", size.to_string()),
        };
        let mut start = self.sign(number < 0);
        if self.shows_base {
            start.push_str(base);
        }
        self.padded(start, self.separated(&digits), Align::Right)
    }

    fn float(&self, number: f64) -> String {
        let start = self.sign(number.is_sign_negative() && !number.is_nan());
        let size = number.abs();
        let digits = if number.is_nan() {
            "nan".to_owned()
        } else if number.is_infinite() {
            "inf".to_owned()
        } else {
            match self.form {
                Some('e') => scientific(size, self.precision.unwrap_or(6)),
                Some('E') => scientific(size, self.precision.unwrap_or(6)).to_uppercase(),
                Some('f' | 'F') => format!("{size:.*}", self.precision.unwrap_or(6)),
                Some('%') => format!("{:.*}%", self.precision.unwrap_or(6), size * 100.0),
                Some('g') => general(size, self.precision.unwrap_or(6)),
                Some('G') => general(size, self.precision.unwrap_or(6)).to_uppercase(),
                _ => match self.precision {
                    Some(precision) => general(size, precision),
                    None => shortest(size),
                },
            }
        };
        self.padded(start, self.separated(&digits), Align::Right)
    }

    /// Digits with a separator after each three in front of the point.
    fn separated(&self, digits: &str) -> String {
        let Some(separator) = self.separator else { return digits.to_owned() };
        let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
        let mut text = String::new();
        for (at, digit) in digits[..whole].chars().enumerate() {
            if at > 0 && (whole - at).is_multiple_of(3) {
                text.push(separator);
            }
            text.push(digit);
        }
        text + &digits[whole..]
    }

    /// A value filled up to the width.
    fn padded(&self, start: String, value: String, usual: Align) -> String {
        let length = start.chars().count() + value.chars().count();
        let missing = self.width.saturating_sub(length);
        let fill = |count: usize| self.fill.unwrap_or(' ').to_string().repeat(count);
        let is_number = usual == Align::Right;
        match if self.align == Align::ByType { usual } else { self.align } {
            Align::Left => start + &value + &fill(missing),
            Align::Middle => fill(missing / 2) + &start + &value + &fill(missing - missing / 2),
            Align::BehindSign if is_number => start + &fill(missing) + &value,
            _ => fill(missing) + &start + &value,
        }
    }
}

/// `1.500000e+00`
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// As many digits as asked for, without zeros at the end, in the shorter of two forms.
fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let digits = format!("{number:.*e}", precision - 1);
    let exponent = digits.split_once('e').and_then(|(_, exponent)| exponent.parse::<i64>().ok());
    let exponent = exponent.unwrap_or_default();
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if exponent < -4 || exponent >= i64::try_from(precision).unwrap_or(i64::MAX) {
        let text = scientific(number, precision - 1);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", trimmed(digits.to_owned()));
    }
    let behind = i64::try_from(precision).unwrap_or(i64::MAX) - 1 - exponent;
    trimmed(format!("{number:.*}", usize::try_from(behind).unwrap_or_default()))
}

/// The fewest digits that stand for the number.
fn shortest(number: f64) -> String {
    let text = format!("{number:e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i64>().ok());
    match exponent.unwrap_or_default() {
        -4..16 => format!("{number:?}"),
        exponent => {
            let digits = text.split_once('e').map_or("0", |(digits, _)| digits);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}
