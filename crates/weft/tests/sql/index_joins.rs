//! Joins that look rows up in indexes: what EXPLAIN says of the choice, the same rows as by hash joins for random data and joins,
//! little memory, cancellation, damage.

use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use fastrand::Rng;
use weft::{Database, DatabaseOptions, ErrorKind, Session};

/// A table `o` of orders, and `l` of four lines for each, with an index of the lines by order.
fn with_orders(session: &Session, orders: u32) {
    let lines = 4 * orders;
    for sql in [
        format!(
            "CREATE TABLE o AS SELECT value AS id, value % 1000 AS day, 'note ' || value AS note \
             FROM generate_series(1, {orders}) AS g(value)"
        ),
        format!(
            "CREATE TABLE l AS SELECT value / 4 AS o, value % 4 AS n, value % 50 AS price, \
             'line ' || value AS text FROM generate_series(4, {}) AS g(value)",
            lines + 3
        ),
        "CREATE INDEX l_o ON l (o, n)".to_owned(),
    ] {
        session.execute(&sql).unwrap();
    }
}

fn plan(session: &Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN {sql}")).join("\n")
}

#[test]
fn a_lookup_is_chosen_where_it_takes_less_time_than_a_scan() {
    let database = database();
    let session = database.session().unwrap();
    with_orders(&session, 60_000);
    session.execute("SET index_scan = 'never'").unwrap();
    let few = "SELECT count(*), sum(price) FROM o JOIN l ON o.id = l.o WHERE o.day = 77";
    let all = "SELECT count(*), sum(price) FROM o JOIN l ON o.id = l.o";
    let words = "inner join by index l_o of l on o = id";
    assert!(plan(&session, few).contains(words), "{}", plan(&session, few));
    assert!(!plan(&session, all).contains("by index"), "{}", plan(&session, all));
    check(&session, few, &["240 2280"]);
    session.execute("SET index_join = 'always'").unwrap();
    check(&session, "SHOW index_join", &["index_join always"]);
    assert!(plan(&session, all).contains(words), "{}", plan(&session, all));
    check(&session, all, &["240000 5880000"]);
    let semi = "SELECT count(*) FROM o WHERE EXISTS (SELECT * FROM l WHERE o = id AND price < day)";
    let words = "semi join by index l_o of l on o = id";
    assert!(plan(&session, semi).contains(words), "{}", plan(&session, semi));
    let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {semi}")).join("\n");
    assert!(analyzed.contains("keys looked up 60,000"), "{analyzed}");
    assert!(analyzed.contains("rows fetched 240,000"), "{analyzed}");
    let constant = "SELECT count(*) FROM o JOIN l ON o.day = l.n WHERE l.o = 5";
    let words = "inner join by index l_o of l on o = 5, n = day";
    assert!(plan(&session, constant).contains(words), "{}", plan(&session, constant));
    check(&session, constant, &["240"]);
    session.execute("SET index_join = 'never'").unwrap();
    assert!(!plan(&session, few).contains("by index"));
    check(&session, few, &["240 2280"]);
}

/// A value of a column, or NULL.
fn value(random: &mut Rng, kind: &str) -> String {
    if random.u8(..10) == 0 {
        return "NULL".into();
    }
    let number = random.u32(..40);
    match kind {
        "VARCHAR" => format!("'{}'", "text ".repeat(number as usize % 4) + &number.to_string()),
        "DATE" => format!("DATE '2024-01-{:02}'", number % 28 + 1),
        "DECIMAL(9, 2)" => format!("{number}.5"),
        _ => number.to_string(),
    }
}

const KINDS: [&str; 5] = ["INTEGER", "BIGINT", "VARCHAR", "DATE", "DECIMAL(9, 2)"];

/// Tables `a` and `b` of the same columns, with indexes, of which rows were deleted and updated.
fn with_random_tables(session: &Session, random: &mut Rng) {
    for table in ["a", "b"] {
        session.execute(&format!("DROP TABLE IF EXISTS {table}")).unwrap();
        let columns: Vec<String> =
            KINDS.iter().enumerate().map(|(at, kind)| format!("c{at} {kind}")).collect();
        let sql = format!("CREATE TABLE {table} (id INTEGER, {})", columns.join(", "));
        session.execute(&sql).unwrap();
        if random.bool() {
            session.execute(&format!("CREATE UNIQUE INDEX {table}_id ON {table} (id)")).unwrap();
        }
        let mut id = 0;
        for _ in 0..random.u32(1..4) {
            let mut tuples = Vec::new();
            for _ in 0..random.u32(1..400) {
                id += 1;
                let values: Vec<String> = KINDS.iter().map(|kind| value(random, kind)).collect();
                tuples.push(format!("({id}, {})", values.join(", ")));
            }
            session.execute(&format!("INSERT INTO {table} VALUES {}", tuples.join(", "))).unwrap();
        }
        for number in 0..2 {
            let mut columns: Vec<usize> = (0..KINDS.len()).collect();
            random.shuffle(&mut columns);
            columns.truncate(random.usize(1..4));
            let orders = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"];
            let columns: Vec<String> = columns
                .iter()
                .map(|column| format!("c{column}{}", orders[random.usize(..orders.len())]))
                .collect();
            let columns = columns.join(", ");
            session
                .execute(&format!("CREATE INDEX {table}_{number} ON {table} ({columns})"))
                .unwrap();
        }
        let (gone, changed) = (random.u32(1..40), random.u32(1..40));
        session.execute(&format!("DELETE FROM {table} WHERE id % 41 = {gone}")).unwrap();
        session
            .execute(&format!("UPDATE {table} SET c0 = c0 + 1 WHERE id % 41 = {changed}"))
            .unwrap();
    }
}

/// A join of `a` and `b`.
fn random_join(random: &mut Rng) -> String {
    let mut conditions = Vec::new();
    let mut columns: Vec<usize> = (0..KINDS.len()).collect();
    random.shuffle(&mut columns);
    for column in &columns[..random.usize(1..4)] {
        conditions.push(match column {
            // Integers of two widths are equal to each other, too.
            0 if random.bool() => "a.c1 = b.c0".into(),
            1 if random.bool() => "a.c0 = b.c1".into(),
            column => format!("a.c{column} = b.c{column}"),
        });
    }
    let residuals = ["a.id < b.id", "a.c1 + b.c1 > 30", "b.c2 LIKE '%1%'", "a.c3 <> b.c3"];
    if random.bool() {
        conditions.push(residuals[random.usize(..residuals.len())].into());
    }
    let filters = ["", " WHERE c0 < 20", " WHERE c2 = '7'", " WHERE c0 + c1 > 15", " WHERE c1 = 5"];
    let side = |random: &mut Rng, table: &str| {
        format!("(SELECT * FROM {table}{}) AS {table}", filters[random.usize(..filters.len())])
    };
    let (a, b) = (side(random, "a"), side(random, "b"));
    let on = conditions.join(" AND ");
    match random.u8(..6) {
        0 | 1 => format!("SELECT a.id, b.id, b.c2, a.c4 FROM {a} JOIN {b} ON {on}"),
        2 => format!("SELECT a.id, b.id, b.c2, b.c3 FROM {a} LEFT JOIN {b} ON {on}"),
        3 => format!("SELECT a.id, b.id, a.c2, a.c3 FROM {a} RIGHT JOIN {b} ON {on}"),
        4 => format!("SELECT a.id, a.c2 FROM {a} WHERE EXISTS (SELECT * FROM {b} WHERE {on})"),
        _ => format!("SELECT a.id, a.c4 FROM {a} WHERE NOT EXISTS (SELECT * FROM {b} WHERE {on})"),
    }
}

#[test]
fn random_joins_give_the_rows_of_hash_joins() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut by_index = 0;
    for (memory, partition, batch) in [
        ("1GB", "adaptive", 8192),
        ("16MiB", "adaptive", 8192),
        ("1GB", "always", 7),
        ("1GB", "adaptive", 1),
    ] {
        let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
        let options = options.with("partition", partition).with("batch_size", batch);
        let database = Database::in_memory(&options.with("memory_limit", memory)).unwrap();
        let session = database.session().unwrap();
        session.execute("SET index_scan = 'never'").unwrap();
        for _ in 0..4 {
            with_random_tables(&session, &mut random);
            for _ in 0..12 {
                let sql = random_join(&mut random);
                let tuples = [1, 3, 128, 2048][random.usize(..4)];
                session.execute(&format!("SET index_join_tuples = {tuples}")).unwrap();
                session.execute("SET index_join = 'never'").unwrap();
                let mut expected = rows(&session, &sql);
                session.execute("SET index_join = 'always'").unwrap();
                by_index += u32::from(plan(&session, &sql).contains("by index"));
                expected.sort();
                for compile in ["never", "always"] {
                    session.execute(&format!("SET compile = '{compile}'")).unwrap();
                    let mut found = rows(&session, &sql);
                    found.sort();
                    let lengths = (found.len(), expected.len());
                    assert!(found == expected, "compile {compile}, {sql}: {lengths:?}");
                }
                session.execute("RESET compile").unwrap();
            }
        }
    }
    assert!(by_index > 20, "{by_index} joins looked rows up");
}

#[test]
fn outer_rows_that_outgrow_memory_are_looked_up_from_disk() {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
    let database = Database::in_memory(&options.with("memory_limit", "16MiB")).unwrap();
    let session = database.session().unwrap();
    with_orders(&session, 2_000);
    let outer = "(SELECT value AS v, value * 7919 % 2500 AS k, repeat('long text ', 8) || value AS s \
                 FROM generate_series(1, 150000) AS g(value)) AS x";
    for (join, sql) in [
        (
            "inner",
            format!(
                "SELECT count(*), sum(v), max(s), sum(price) FROM {outer} JOIN l ON l.o = k AND n < 2"
            ),
        ),
        (
            "left",
            format!(
                "SELECT count(*), sum(v), max(s), count(price) FROM {outer} LEFT JOIN l ON l.o = k AND n > price"
            ),
        ),
        (
            "anti",
            format!(
                "SELECT count(*), sum(v), max(s) FROM {outer} WHERE NOT EXISTS (SELECT * FROM l WHERE l.o = k)"
            ),
        ),
    ] {
        session.execute("SET index_join = 'never'").unwrap();
        let expected = rows(&session, &sql);
        session.execute("SET index_join = 'always'").unwrap();
        assert!(plan(&session, &sql).contains(&format!("{join} join by index")), "{sql}");
        assert_eq!(rows(&session, &sql), expected, "{sql}");
    }
}

#[test]
fn a_cancelled_lookup_ends_soon_and_leaves_no_memory_behind() {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
    let database = Database::in_memory(&options.with("index_join", "always")).unwrap();
    let session = database.session().unwrap();
    with_orders(&session, 20_000);
    session.execute("CREATE INDEX l_price ON l (price)").unwrap();
    let used = || {
        let stats = database.stats();
        stats.memory_used.saturating_sub(stats.memory_cached)
    };
    let before = used();
    // Each line has 1600 others with its price.
    let sql = "SELECT sum(a.o + b.n), max(b.text) FROM l AS a JOIN l AS b ON a.price = b.price";
    for (after, compile) in [(1, "never"), (1, "always"), (20, "always"), (150, "never")] {
        session.execute(&format!("SET compile = '{compile}'")).unwrap();
        let result = session.query(sql).unwrap();
        let handle = result.cancel_handle();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(after));
            handle.cancel();
        });
        let error = result.collect().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        canceller.join().unwrap();
        let since = Instant::now();
        // Code is kept.
        while used() > before + (64 << 10) {
            assert!(since.elapsed() < Duration::from_secs(20), "{} bytes are left", used());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn an_error_of_a_damaged_page_names_the_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    with_orders(&session, 20_000);
    drop((session, database));
    let file = path.join("data-0.weft");
    let mut bytes = std::fs::read(&file).unwrap();
    // Nodes of a tree say so in their headers.
    let mut damaged = 0;
    for page in bytes.chunks_exact_mut(4096) {
        if page[6] == 0x20 && page[19] == 0xb7 && page[16] == 0 {
            page[200] ^= 0x40;
            damaged += 1;
        }
    }
    assert!(damaged > 5, "{damaged} pages of the index");
    std::fs::write(&file, &bytes).unwrap();
    let database = Database::open(&path, &DatabaseOptions::default()).unwrap();
    let session = database.session().unwrap();
    session.execute("SET index_join = 'always'").unwrap();
    let sql = "SELECT count(*), sum(price) FROM o JOIN l ON o.id = l.o";
    let errors = ["never", "always"].map(|compile| {
        session.execute(&format!("SET compile = '{compile}'")).unwrap();
        let error = check_error(&session, sql, ErrorKind::Storage).to_string();
        assert!(error.contains("l_o"), "{error}");
        error
    });
    assert_eq!(errors[0].split(':').next(), errors[1].split(':').next());
    session.execute("SET index_join = 'never'").unwrap();
    check(&session, sql, &["80000 1960000"]);
}
