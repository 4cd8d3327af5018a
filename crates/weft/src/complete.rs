//! What a shell can complete.

/// The names that a session knows at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Tables and views with their columns, in order of their names.
    pub tables: Vec<(String, Vec<String>)>,
    /// Functions, in order.
    pub functions: Vec<String>,
    /// Settings, Weft's first.
    pub settings: Vec<String>,
}

impl Completions {
    /// Everything that starts with `prefix`, whatever its case: tables, columns, functions and
    /// keywords, in order and each once.
    pub fn matching(&self, prefix: &str) -> Vec<String> {
        let prefix = prefix.to_lowercase();
        let mut found: Vec<String> = self
            .tables
            .iter()
            .flat_map(|(table, columns)| std::iter::once(table).chain(columns))
            .chain(&self.functions)
            .map(String::as_str)
            .chain(keywords().iter().copied())
            .filter(|name| name.to_lowercase().starts_with(&prefix))
            .map(str::to_owned)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The keywords of SQL that people write, in order.
pub fn keywords() -> &'static [&'static str] {
    &KEYWORDS
}

static KEYWORDS: [&str; 128] = [
    "ADD",
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANTI",
    "ANY",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BLOB",
    "BOOLEAN",
    "BY",
    "CASE",
    "CAST",
    "COLUMNS",
    "COPY",
    "CREATE",
    "CROSS",
    "CSV",
    "CUBE",
    "CURRENT",
    "DATABASE",
    "DATE",
    "DAY",
    "DEALLOCATE",
    "DECIMAL",
    "DEFAULT",
    "DELIMITER",
    "DESC",
    "DESCRIBE",
    "DEVICE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "ESCAPE",
    "EXCEPT",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FIRST",
    "FLOAT",
    "FOLLOWING",
    "FORMAT",
    "FROM",
    "FULL",
    "GROUP",
    "GROUPING",
    "HAVING",
    "HEADER",
    "HOUR",
    "IF",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INT",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "JSON",
    "LAST",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MINUTE",
    "MONTH",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARQUET",
    "PARTITION",
    "PRECEDING",
    "PREPARE",
    "RANGE",
    "REAL",
    "RECURSIVE",
    "REPLACE",
    "RESET",
    "RIGHT",
    "ROLLUP",
    "ROW",
    "ROWS",
    "SECOND",
    "SELECT",
    "SEMI",
    "SET",
    "SETS",
    "SHOW",
    "SMALLINT",
    "TABLE",
    "TABLES",
    "TEXT",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "TO",
    "TRUE",
    "UNBOUNDED",
    "UNION",
    "UNNEST",
    "UNSIGNED",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_in_order() {
        assert!(keywords().is_sorted());
    }

    #[test]
    fn completes_whatever_the_case() {
        let completions = Completions {
            tables: vec![("selection".into(), vec!["id".into()])],
            functions: vec!["sum".into()],
            settings: Vec::new(),
        };
        assert_eq!(completions.matching("SEL"), ["SELECT", "selection"]);
        assert_eq!(completions.matching("i").first().map(String::as_str), Some("IF"));
    }
}
