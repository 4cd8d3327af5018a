//! The 22 queries of TPC-H with its validation parameters, and the answers known for them.

use crate::answer::{Answer, AnswerError, limit_of, parse_order_keys};

macro_rules! tpch_file {
    ($path:expr) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tpch/", $path))
    };
}

macro_rules! query {
    ($($number:literal)*) => {
        [$(Query {
            number: parse_number($number),
            sql: tpch_file!(concat!("queries/q", $number, ".sql")),
            answers: [
                (0.01, tpch_file!(concat!("sf0.01/q", $number, ".csv"))),
                (1.0, tpch_file!(concat!("sf1/q", $number, ".csv"))),
            ],
        }),*]
    };
}

/// The statements that create the tables.
pub const SCHEMA: &str = tpch_file!("schema.sql");

/// The queries, in order.
pub static QUERIES: [Query; 22] = query!(
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11"
    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);

const ORDER_KEYS: &str = tpch_file!("sf0.01/order_keys.csv");

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Its number, from 1.
    pub number: u32,
    /// Its text.
    pub sql: &'static str,
    answers: [(f64, &'static str); 2],
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
        let all = parse_order_keys(ORDER_KEYS)?;
        let name = self.name();
        let found = all.into_iter().find(|(query, _)| *query == name);
        found
            .map(|(_, keys)| keys)
            .ok_or_else(|| AnswerError::Reference(format!("order_keys.csv has no line for {name}")))
    }
}

const fn parse_number(text: &str) -> u32 {
    let digits = text.as_bytes();
    (digits[0] - b'0') as u32 * 10 + (digits[1] - b'0') as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_its_answers() {
        for (index, query) in QUERIES.iter().enumerate() {
            assert_eq!(query.number as usize, index + 1);
            for scale in [0.01, 1.0] {
                let answer = query.answer(scale).unwrap().unwrap();
                assert!(answer.row_count() > 0, "{} at {scale}", query.name());
            }
            assert_eq!(query.answer(0.5).unwrap(), None);
        }
    }
}
