//! A query of a benchmark, and the answers known for it.

use crate::answer::{Answer, AnswerError, limit_of, parse_order_keys};

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Its number, from 1.
    pub number: u32,
    /// Its text.
    pub sql: &'static str,
    /// Scale factors, and the answers at these as CSV.
    pub(super) answers: &'static [(f64, &'static str)],
    /// The output columns that ORDER BY names, of all queries of the benchmark, as CSV.
    pub(super) order_keys: &'static str,
}

impl Query {
    /// The query's name: `q01`.
    pub fn name(&self) -> String {
        format!("q{:02}", self.number)
    }

    /// The answer at a scale factor, if it is known.
    ///
    /// # Errors
    /// [`AnswerError::Reference`] if what is built in is not an answer.
    pub fn answer(&self, scale: f64) -> Result<Option<Answer>, AnswerError> {
        let Some((_, csv)) = self.answers.iter().find(|(known, _)| *known == scale) else {
            return Ok(None);
        };
        Answer::parse(csv, &self.order_keys()?, limit_of(self.sql)).map(Some)
    }

    /// The output columns that ORDER BY names.
    ///
    /// # Errors
    /// [`AnswerError::Reference`] if what is built in is not a list of them.
    pub fn order_keys(&self) -> Result<Vec<usize>, AnswerError> {
        let all = parse_order_keys(self.order_keys)?;
        let name = self.name();
        let found = all.into_iter().find(|(query, _)| *query == name);
        found
            .map(|(_, keys)| keys)
            .ok_or_else(|| AnswerError::Reference(format!("order_keys.csv has no line for {name}")))
    }
}

/// The number that two digits are.
pub(super) const fn parse_number(text: &str) -> u32 {
    let digits = text.as_bytes();
    (digits[0] - b'0') as u32 * 10 + (digits[1] - b'0') as u32
}
