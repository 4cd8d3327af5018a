//! Generated data sets: the pages hold the generator's rows, the queries give the reference answers,
//! a stopped generation continues to the same bytes, and damaged or foreign files are refused.

use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{LineItem, LineItemGenerator, PartGenerator};
use tpchgen::text::TextPool;
use weft_bench::SizeClass;
use weft_bench::tpch::{
    Answers, GenerateOptions, LineitemColumns, PageTable, PartIndex, PartPage, Progress, Q1Page,
    Q1State, Q14Sum, Table, TableSpec, TpchError, generate, part_page_accesses, q1, q14,
    ship_month_rows,
};
use weft_rt::Ahead;

const SCALE: f64 = 0.01;

fn class(bytes: usize) -> SizeClass {
    SizeClass::from_bytes(bytes).expect("a page size")
}

fn spec(table: Table, page_bytes: usize, directories: &[&Path]) -> TableSpec {
    let directories = directories.iter().map(|path| path.to_path_buf()).collect();
    TableSpec { table, scale_factor: SCALE, class: class(page_bytes), directories }
}

fn parts(parts: u32) -> GenerateOptions {
    GenerateOptions { parts: NonZero::new(parts), threads: NonZero::new(2) }
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn make(spec: &TableSpec, options: GenerateOptions) -> PageTable {
    generate(spec, options, &mut go_on).expect("generates")
}

fn lineitems(pool: &TextPool, scale_factor: f64) -> impl Iterator<Item = LineItem<'_>> {
    let distributions = Distributions::static_default();
    LineItemGenerator::new_with_distributions_and_text_pool(scale_factor, 1, 1, distributions, pool)
        .into_iter()
}

#[test]
fn pages_hold_the_generators_rows_at_every_page_size() {
    let directory = TempDir::new().expect("a directory");
    let pool = TextPool::new(1 << 16, Distributions::static_default());
    for page_bytes in (12..=20).map(|bits| 1 << bits) {
        let table = make(&spec(Table::LineitemQ1, page_bytes, &[directory.path()]), parts(3));
        let mut rows = lineitems(&pool, SCALE);
        let mut count = 0;
        table
            .for_each_page(|_, bytes| {
                let page = Q1Page::new(bytes)?;
                for i in 0..page.tuple_count() {
                    let (tuple, row) = (page.tuple(i), rows.next().expect("a row"));
                    assert_eq!(tuple.quantity, row.l_quantity * 100);
                    assert_eq!(tuple.extendedprice, row.l_extendedprice.0);
                    assert_eq!(tuple.discount, row.l_discount.0);
                    assert_eq!(tuple.tax, row.l_tax.0);
                    assert_eq!(tuple.shipdate, row.l_shipdate.to_unix_epoch());
                    assert_eq!([tuple.returnflag], row.l_returnflag.as_bytes());
                    assert_eq!([tuple.linestatus], row.l_linestatus.as_bytes());
                    count += 1;
                }
                Ok(())
            })
            .expect("reads");
        assert!(rows.next().is_none());
        assert_eq!(table.rows, count);
    }
    let table = make(&spec(Table::LineitemQ14, 16384, &[directory.path()]), parts(2));
    let columns = LineitemColumns::load(&table).expect("loads");
    assert_eq!(columns.len() as u64, table.rows);
    for (i, row) in lineitems(&pool, SCALE).enumerate() {
        assert_eq!(i64::from(columns.partkey[i]), row.l_partkey);
        assert_eq!(columns.extendedprice[i], row.l_extendedprice.0);
        assert_eq!(columns.discount[i], row.l_discount.0);
        assert_eq!(columns.shipdate[i], row.l_shipdate.to_unix_epoch());
    }
    let table = make(&spec(Table::Part, 4096, &[directory.path()]), parts(2));
    let mut rows = PartGenerator::new(SCALE, 1, 1).into_iter();
    table
        .for_each_page(|_, bytes| {
            let page = PartPage::new(bytes)?;
            for i in 0..page.partkey.len() {
                let row = rows.next().expect("a row");
                assert_eq!(page.retailprice[i], row.p_retailprice.0);
                assert_eq!(i64::from(page.partkey[i]), row.p_partkey);
                assert_eq!(page.size[i], row.p_size);
                let strings = [page.name, page.mfgr, page.brand, page.r#type, page.container];
                let text = strings.map(|column| String::from_utf8_lossy(column.get(i)));
                let row_text = [
                    row.p_name.to_string(),
                    row.p_mfgr.to_string(),
                    row.p_brand.to_string(),
                    row.p_type.to_owned(),
                    row.p_container.to_owned(),
                ];
                assert_eq!(text, row_text);
                assert_eq!(page.comment.get(i), row.p_comment.as_bytes());
            }
            Ok(())
        })
        .expect("reads");
    assert!(rows.next().is_none());
}

fn check_queries(scale_factor: f64, directory: &Path) {
    let spec = |table, bytes| TableSpec { scale_factor, ..spec(table, bytes, &[directory]) };
    let q1_spec = spec(Table::LineitemQ1, 65536);
    let lineitem = make(&q1_spec, GenerateOptions::default());
    let mut state = Q1State::new();
    lineitem
        .for_each_page(|_, bytes| {
            state.add_page(Q1Page::new(bytes)?, Ahead::NOTHING).expect("no overflow");
            Ok(())
        })
        .expect("reads");
    assert_eq!(state.exact_pages(), 0, "TPC-H's pages stay on the fast path");

    let lineitem = make(&spec(Table::LineitemQ14, 65536), GenerateOptions::default());
    let part = make(&spec(Table::Part, 4096), GenerateOptions::default());
    let columns = LineitemColumns::load(&lineitem).expect("loads");
    let index = PartIndex::build(&part).expect("builds");
    assert_eq!(index.len() as u64, part.rows);
    let mut pages: Vec<Vec<u64>> = Vec::new();
    part.for_each_page(|_, bytes| {
        let mut words = vec![0u64; bytes.len() / 8];
        bytemuck::cast_slice_mut(&mut words).copy_from_slice(bytes);
        pages.push(words);
        Ok(())
    })
    .expect("reads");
    let (mut sum, mut rows) = (Q14Sum::default(), Vec::new());
    ship_month_rows(&columns.shipdate, None, &mut rows);
    let mut accesses = vec![0; pages.len()];
    for row in rows.iter().map(|&row| row as usize) {
        let entry = index.get(columns.partkey[row]).expect("every lineitem has a part");
        let page =
            PartPage::new(bytemuck::cast_slice(&pages[entry.page as usize])).expect("a page");
        assert_eq!(page.partkey[usize::from(entry.tuple)], entry.key);
        let is_promo = page.is_promo(entry.tuple.into());
        sum.add(columns.extendedprice[row], columns.discount[row], is_promo);
        accesses[entry.page as usize] += 1;
    }
    assert_eq!(part_page_accesses(&columns, &index, pages.len()), accesses);

    let rows = state.rows().expect("no overflow");
    for answers in [Answers::of(&q1_spec), Answers::compute(scale_factor)] {
        let answers = answers.expect("answers");
        q1::check(&rows, &answers.q1).expect("query 1");
        q14::check(&sum, &answers.q14).expect("query 14");
    }
    // The checks can fail.
    let mut answers = Answers::of(&q1_spec).expect("answers");
    answers.q1[2].sum_charge += 1;
    let error = q1::check(&rows, &answers.q1).expect_err("a wrong charge");
    assert!(error.to_string().contains("NO sum_charge"), "{error}");
    answers.q14.promo_revenue_percent = Some(16.5);
    q14::check(&sum, &answers.q14).expect_err("a wrong percentage");
}

#[test]
fn queries_give_the_reference_answers() {
    let directory = TempDir::new().expect("a directory");
    check_queries(SCALE, directory.path());
    // The stored answers are those of a computation without pages; lost or damaged, they come back.
    let spec = spec(Table::LineitemQ1, 65536, &[directory.path()]);
    let path = directory.path().join("tpch-sf0.01/answers.json");
    let stored = fs::read_to_string(&path).expect("answers.json");
    fs::remove_file(&path).expect("removes");
    let answers = Answers::of(&spec).expect("computes");
    assert_eq!(fs::read_to_string(&path).expect("answers.json"), stored);
    assert_eq!(Answers::of(&spec).expect("loads"), answers);
    fs::write(&path, stored.replacen('4', "5", 1)).expect("writes");
    let error = Answers::of(&spec).expect_err("a flipped digit");
    assert!(matches!(error, TpchError::AnswersDamaged { .. }), "{error}");
    let tiny = TableSpec { scale_factor: 0.001, ..spec };
    assert!(Answers::of(&tiny).expect("computes").q1.len() == 4);
    assert!(!tiny.data_set_directory(0).exists());
}

fn bytes_of(table: &PageTable) -> Vec<Vec<u8>> {
    table.stripes.iter().map(|path| fs::read(path).expect("reads")).collect()
}

fn partials(spec: &TableSpec) -> Vec<PathBuf> {
    (0..spec.directories.len())
        .map(|stripe| spec.stripe_path(stripe).with_extension("pages.partial"))
        .collect()
}

/// Stops when `done` parts are on disk, as a kill at that moment would.
fn stop_at(spec: &TableSpec, done: u32) {
    let result = generate(spec, parts(5), &mut |progress| {
        if progress.parts_done == done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(TpchError::Stopped { parts_done, .. }) if parts_done == done));
    assert!((0..spec.directories.len()).all(|stripe| !spec.stripe_path(stripe).exists()));
    assert!(matches!(PageTable::open(spec), Err(TpchError::Incomplete { parts: 5, .. })));
}

#[test]
fn a_stopped_generation_continues_to_the_same_bytes() {
    for (table, page_bytes) in [(Table::LineitemQ1, 65536), (Table::LineitemQ14, 4096)] {
        let (left, right) = (TempDir::new().expect("one"), TempDir::new().expect("two"));
        // The second directory comes twice: two stripes beside each other.
        let directories = [left.path(), right.path(), right.path()];
        let spec = spec(table, page_bytes, &directories);
        let whole = make(&spec, parts(5));
        let expected = bytes_of(&whole);
        let answers = Answers::of(&spec).expect("answers");
        assert_eq!(whole.page_ids[4].device(), 1);
        assert_eq!(whole.page_ids[4].offset(), 2 * page_bytes as u64);
        let start_again = || {
            whole.stripes.iter().for_each(|path| fs::remove_file(path).expect("removes"));
            fs::remove_file(left.path().join("tpch-sf0.01/answers.json")).expect("removes");
        };
        let finish = |what: &str| {
            assert_eq!(bytes_of(&make(&spec, parts(5))), expected, "{what}");
            assert!(partials(&spec).iter().all(|path| !path.exists()), "{what}");
            assert_eq!(Answers::of(&spec).expect("answers"), answers, "{what}");
        };
        for done in 0..=5 {
            start_again();
            stop_at(&spec, done);
            finish(&format!("stopped after {done} parts"));

            // Killed while the next part's pages were written: more bytes than the header counts.
            start_again();
            stop_at(&spec, done);
            for path in partials(&spec) {
                let mut bytes = fs::read(&path).expect("reads");
                bytes.resize(bytes.len() + 100_000, 0xAB);
                fs::write(path, bytes).expect("writes");
            }
            finish(&format!("killed in the part after {done}"));
        }
        // Killed between two headers: one stripe counts a part less than the others.
        start_again();
        stop_at(&spec, 2);
        let early = fs::read(&partials(&spec)[1]).expect("reads");
        stop_at(&spec, 3);
        let late = fs::read(&partials(&spec)[1]).expect("reads");
        fs::write(&partials(&spec)[1], [&early[..4096], &late[4096..]].concat()).expect("writes");
        finish("killed between two headers");

        // Killed between two renames.
        fs::rename(&whole.stripes[1], &partials(&spec)[1]).expect("renames");
        assert!(matches!(PageTable::open(&spec), Err(TpchError::Incomplete { .. })));
        finish("killed between two renames");

        // Killed right after creating a file, and a header lost to a power failure.
        start_again();
        stop_at(&spec, 2);
        fs::write(&partials(&spec)[2], [0; 5000]).expect("writes");
        finish("a file without a header");
        start_again();
        stop_at(&spec, 2);
        let mut torn = fs::read(&partials(&spec)[0]).expect("reads");
        torn[40] ^= 1;
        fs::write(&partials(&spec)[0], torn).expect("writes");
        finish("a torn header");
    }
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let directory = TempDir::new().expect("a directory");
    let spec = spec(Table::LineitemQ1, 65536, &[directory.path()]);
    let table = make(&spec, parts(2));
    let path = &table.stripes[0];
    let good = fs::read(path).expect("reads");
    let refused = |bytes: &[u8], what: &str, is_expected: fn(&TpchError) -> bool| {
        fs::write(path, bytes).expect("writes");
        for error in [PageTable::open(&spec).err(), generate(&spec, parts(2), &mut go_on).err()] {
            let error = error.unwrap_or_else(|| panic!("{what} was accepted"));
            assert!(is_expected(&error), "{what}: {error}");
            assert!(error.to_string().contains("lineitem_q1.64k.pages"), "{what}: {error}");
        }
        assert!(fs::read(path).expect("reads") == bytes, "{what} was changed");
    };
    let length = |e: &TpchError| matches!(e, TpchError::Length { .. });
    refused(&good[..good.len() - 1], "a file too short", length);
    refused(&[&good[..], &[0]].concat(), "a file too long", length);
    let foreign = |e: &TpchError| matches!(e, TpchError::Foreign { .. });
    refused(b"", "an empty file", foreign);
    refused(&vec![b'x'; 10_000], "a foreign file", foreign);
    let mut damaged = good.clone();
    damaged[50] ^= 1;
    refused(&damaged, "a damaged header", |e| matches!(e, TpchError::HeaderDamaged { .. }));

    // A page that changed is found when it is read.
    let mut damaged = good.clone();
    damaged[65536 + 5000] ^= 1;
    fs::write(path, &damaged).expect("writes");
    let opened = PageTable::open(&spec).expect("the header is sound");
    let error = opened.for_each_page(|_, _| Ok(())).expect_err("a damaged page");
    assert!(matches!(error, TpchError::Page { .. }), "{error}");
    fs::write(path, &good).expect("writes");

    // Files of other parameters under this name.
    let others = [
        TableSpec { table: Table::LineitemQ14, ..spec.clone() },
        TableSpec { class: class(32768), ..spec.clone() },
        TableSpec { scale_factor: 0.001, ..spec.clone() },
    ];
    for (other, what) in others.iter().zip(["table", "page size", "scale factor"]) {
        let other = make(other, parts(1));
        fs::copy(&other.stripes[0], path).expect("copies");
        let error = PageTable::open(&spec).expect_err("other data");
        assert!(matches!(error, TpchError::Mismatch { what: w, .. } if w == what), "{error}");
    }
    fs::remove_file(path).expect("removes");
    assert!(matches!(PageTable::open(&spec), Err(TpchError::Missing { .. })));

    // The same for files of an unfinished run.
    let partial = path.with_extension("pages.partial");
    fs::write(&partial, "my notes").expect("writes");
    let error = generate(&spec, parts(2), &mut go_on).expect_err("a foreign file");
    assert!(matches!(error, TpchError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(&partial).expect("reads"), b"my notes");
    fs::remove_file(&partial).expect("removes");
    let mut stop = |p: Progress| {
        if p.parts_done == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    generate(&spec, parts(2), &mut stop).expect_err("stopped");
    let error = generate(&spec, parts(3), &mut go_on).expect_err("another number of parts");
    assert!(matches!(error, TpchError::Mismatch { what: "number of parts", .. }), "{error}");
    let bytes = fs::read(&partial).expect("reads");
    fs::write(&partial, &bytes[..bytes.len() - 1]).expect("writes");
    let error = generate(&spec, parts(2), &mut go_on).expect_err("a short file");
    assert!(matches!(error, TpchError::Length { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn impossible_wishes_are_refused() {
    let directory = TempDir::new().expect("a directory");
    let good = spec(Table::Part, 4096, &[directory.path()]);
    for scale_factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e9] {
        let error = generate(&TableSpec { scale_factor, ..good.clone() }, parts(1), &mut go_on);
        assert!(matches!(error, Err(TpchError::ScaleFactor(_))));
    }
    for count in [0, 257] {
        let directories = vec![directory.path().to_path_buf(); count];
        let error = generate(&TableSpec { directories, ..good.clone() }, parts(1), &mut go_on);
        assert!(matches!(error, Err(TpchError::Directories(n)) if n == count));
    }
    let file = directory.path().join("file");
    fs::write(&file, "").expect("writes");
    let inside = TableSpec { directories: vec![file], ..good.clone() };
    let error = generate(&inside, parts(1), &mut go_on).expect_err("a file for a directory");
    assert!(matches!(error, TpchError::Io { .. }), "{error}");
    let mut inner = None;
    let two = TableSpec { table: Table::LineitemQ1, ..good };
    let result = generate(&two, parts(1), &mut |_| {
        inner.get_or_insert_with(|| generate(&two, parts(1), &mut go_on));
        ControlFlow::Continue(())
    });
    result.expect("the first generator is not disturbed");
    assert!(matches!(inner, Some(Err(TpchError::Locked { .. }))));
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing_taken_for_whole() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("no /dev/full on this system");
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let spec = spec(Table::LineitemQ1, 65536, &[directory.path()]);
    fs::create_dir_all(spec.data_set_directory(0)).expect("creates");
    std::os::unix::fs::symlink(full, &partials(&spec)[0]).expect("links");
    let error = generate(&spec, parts(2), &mut go_on).expect_err("a full disk");
    assert!(matches!(error, TpchError::DiskFull { .. }), "{error}");
    assert!(!spec.stripe_path(0).exists());
}
