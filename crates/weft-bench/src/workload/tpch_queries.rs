//! The 22 queries of TPC-H with its validation parameters, and the answers known for them.

use super::query::{Query, parse_number};

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
            answers: &[
                (0.01, tpch_file!(concat!("sf0.01/q", $number, ".csv"))),
                (1.0, tpch_file!(concat!("sf1/q", $number, ".csv"))),
            ],
            order_keys: ORDER_KEYS,
        }),*]
    };
}

/// The statements that create the tables.
pub const SCHEMA: &str = tpch_file!("schema.sql");

const ORDER_KEYS: &str = tpch_file!("sf0.01/order_keys.csv");

/// The queries, in order.
pub static QUERIES: [Query; 22] = query!(
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11"
    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);

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
