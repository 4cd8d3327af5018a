//! The 99 queries of TPC-DS with its validation parameters, and the answers known for them.

use super::query::{Query, parse_number};

macro_rules! tpcds_file {
    ($path:expr) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tpcds/", $path))
    };
}

macro_rules! query {
    ($($number:literal)*) => {
        [$(Query {
            number: parse_number($number),
            sql: tpcds_file!(concat!("queries/q", $number, ".sql")),
            answers: &[(0.01, tpcds_file!(concat!("sf0.01/q", $number, ".csv")))],
            order_keys: ORDER_KEYS,
        }),*]
    };
}

/// The statements that create the tables.
pub const SCHEMA: &str = tpcds_file!("schema.sql");

const ORDER_KEYS: &str = tpcds_file!("sf0.01/order_keys.csv");

/// The queries, in order.
pub static QUERIES: [Query; 99] = query!(
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11"
    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
    "23" "24" "25" "26" "27" "28" "29" "30" "31" "32" "33"
    "34" "35" "36" "37" "38" "39" "40" "41" "42" "43" "44"
    "45" "46" "47" "48" "49" "50" "51" "52" "53" "54" "55"
    "56" "57" "58" "59" "60" "61" "62" "63" "64" "65" "66"
    "67" "68" "69" "70" "71" "72" "73" "74" "75" "76" "77"
    "78" "79" "80" "81" "82" "83" "84" "85" "86" "87" "88"
    "89" "90" "91" "92" "93" "94" "95" "96" "97" "98" "99"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_its_answer() {
        for (index, query) in QUERIES.iter().enumerate() {
            assert_eq!(query.number as usize, index + 1);
            // Some find nothing in so little data.
            assert!(query.answer(0.01).unwrap().is_some(), "{}", query.name());
            assert_eq!(query.answer(1.0).unwrap(), None);
        }
    }
}
