//! Reference answers of queries 1 and 14, computed from the generator's rows with 128-bit integers and
//! never from pages; at scale factor 1 the official answers are used instead.
//!
//! They are stored in the data set as `answers.json` with a checksum. A missing file is no harm: the
//! answers are computed again from the generator, without pages.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};
use weft_buffer::page::checksum;

use super::error::TpchError;
use super::generate::worker_count;
use super::layout::Table;
use super::lineitem_page::{Q1Tuple, Q14Tuple};
use super::page_file::TableSpec;
use super::page_header_block::GENERATOR;
use super::part_pages::{RowSource, part_count, q1_tuple, q14_tuple};
use super::q1::{LAST_SHIPDATE, Q1Groups, Q1Row, Q1Sums, add_to_group, rows};
use super::q14::{Q14Reference, Q14Sum};
use super::q14_filter::{END_SHIPDATE, FIRST_SHIPDATE};
use super::stripe_writer::sync_directory_of;

/// Sums over generated rows: those of query 1, of query 14, or both, as far as they were fed.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSums {
    q1: Option<Q1Groups>,
    q14: Option<Q14Sum>,
}

impl RowSums {
    pub(super) fn add_q1(&mut self, row: &Q1Tuple) -> Result<(), TpchError> {
        let groups = self.q1.get_or_insert_default();
        if row.shipdate > LAST_SHIPDATE {
            return Ok(());
        }
        let sums = Q1Sums::of(row).ok_or(TpchError::Overflow { query: 1 })?;
        add_to_group(groups, (row.returnflag, row.linestatus), &sums)
    }

    pub(super) fn add_q14(&mut self, row: &Q14Tuple, promo: &PromoParts) {
        let sum = self.q14.get_or_insert_default();
        if (FIRST_SHIPDATE..END_SHIPDATE).contains(&row.shipdate) {
            sum.add(row.extendedprice, row.discount, promo.contains(row.partkey));
        }
    }

    pub(super) fn plus(&mut self, other: RowSums) -> Result<(), TpchError> {
        if let Some(groups) = other.q1 {
            let into = self.q1.get_or_insert_default();
            groups.iter().try_for_each(|(key, sums)| add_to_group(into, *key, sums))?;
        }
        if let Some(sum) = other.q14 {
            self.q14.get_or_insert_default().merge(sum);
        }
        Ok(())
    }
}

/// Which parts are promotions, by key.
#[derive(Debug, Default)]
pub(super) struct PromoParts {
    is_promo: Vec<bool>,
}

impl PromoParts {
    pub(super) fn of(source: &RowSource) -> PromoParts {
        // Part keys count from 1.
        let types = source.parts(0, 1).map(|part| part.p_type.starts_with("PROMO"));
        PromoParts { is_promo: std::iter::once(false).chain(types).collect() }
    }

    fn contains(&self, partkey: u32) -> bool {
        self.is_promo[partkey as usize]
    }
}

/// The reference answers of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// The rows of query 1.
    pub q1: Vec<Q1Row>,
    /// The result of query 14.
    pub q14: Q14Reference,
}

/// `answers.json`.
#[derive(Debug, Serialize, Deserialize)]
struct AnswersFile {
    version: u32,
    generator: String,
    scale_factor: f64,
    q1: Option<Vec<GroupSums>>,
    q14: Option<(i128, i128)>,
    /// CRC-32C of this file's JSON with 0 here.
    crc32c: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct GroupSums {
    returnflag: u8,
    linestatus: u8,
    quantity: i128,
    base_price: i128,
    discount: i128,
    disc_price: i128,
    charge: i128,
    count: u64,
}

impl Answers {
    /// The answers for the data set that `spec`'s first directory holds: the official ones at scale
    /// factor 1, else from `answers.json`, else computed (seconds per unit of scale factor and core)
    /// and stored if the directory exists.
    ///
    /// # Errors
    /// [`TpchError`] if `answers.json` is damaged, of other data, or cannot be read or written.
    pub fn of(spec: &TableSpec) -> Result<Answers, TpchError> {
        spec.validate()?;
        if spec.scale_factor == 1.0 {
            return Ok(Answers { q1: official_q1(), q14: OFFICIAL_Q14 });
        }
        let mut sums = load(spec)?.unwrap_or_default();
        if sums.q1.is_none() || sums.q14.is_none() {
            sums = Answers::compute_sums(spec.scale_factor)?;
            if spec.data_set_directory(0).is_dir() {
                store(spec, &sums)?;
            }
        }
        Ok(from_sums(&sums))
    }

    /// The answers computed from the generator's rows, at any scale factor, by all cores.
    ///
    /// # Errors
    /// [`TpchError::Overflow`] never happens on TPC-H data.
    pub fn compute(scale_factor: f64) -> Result<Answers, TpchError> {
        Ok(from_sums(&Answers::compute_sums(scale_factor)?))
    }

    fn compute_sums(scale_factor: f64) -> Result<RowSums, TpchError> {
        let source = RowSource::without_comments(scale_factor);
        let promo = PromoParts::of(&source);
        let parts = part_count(Table::LineitemQ1, scale_factor);
        let workers = worker_count(None) as u32;
        let sum_every = |first: u32| {
            let mut sums = RowSums::default();
            for part in (first..parts).step_by(workers as usize) {
                for row in source.lineitems(part, parts) {
                    sums.add_q1(&q1_tuple(&row))?;
                    sums.add_q14(&q14_tuple(&row), &promo);
                }
            }
            Ok(sums)
        };
        thread::scope(|scope| {
            let sum_every = &sum_every;
            let threads: Vec<_> =
                (0..workers).map(|first| scope.spawn(move || sum_every(first))).collect();
            let mut sums = RowSums { q1: Some(Q1Groups::new()), q14: Some(Q14Sum::default()) };
            for thread in threads {
                let part: Result<RowSums, TpchError> =
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                sums.plus(part?)?;
            }
            Ok(sums)
        })
    }

    /// Adds what one table's generation computed to `answers.json`. The caller holds the directory's
    /// lock. A damaged file is replaced.
    pub(super) fn store_sums(spec: &TableSpec, sums: RowSums) -> Result<(), TpchError> {
        if sums.q1.is_none() && sums.q14.is_none() {
            return Ok(());
        }
        let stored = match load(spec) {
            Err(TpchError::AnswersDamaged { .. }) => None,
            other => other?,
        };
        let stored = stored.unwrap_or_default();
        store(spec, &RowSums { q1: sums.q1.or(stored.q1), q14: sums.q14.or(stored.q14) })
    }
}

fn from_sums(sums: &RowSums) -> Answers {
    let sum = sums.q14.unwrap_or_default();
    let percent = sum.promo_revenue_percent();
    Answers {
        q1: sums.q1.as_ref().map(rows).unwrap_or_default(),
        q14: Q14Reference { promo_revenue_percent: percent, sum: Some(sum) },
    }
}

fn file_path(spec: &TableSpec) -> PathBuf {
    spec.data_set_directory(0).join("answers.json")
}

impl AnswersFile {
    fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names are JSON")
    }

    fn computed_crc(mut self) -> u32 {
        self.crc32c = 0;
        checksum(self.text().as_bytes())
    }
}

fn load(spec: &TableSpec) -> Result<Option<RowSums>, TpchError> {
    let path = file_path(spec);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TpchError::io("read", &path, error)),
    };
    let damaged = |reason: String| TpchError::AnswersDamaged { path: path.clone(), reason };
    let parse = || serde_json::from_str(&text).map_err(|error| damaged(error.to_string()));
    let file: AnswersFile = parse()?;
    if file.crc32c != parse()?.computed_crc() {
        return Err(damaged("checksum mismatch".to_owned()));
    }
    if file.generator != GENERATOR || file.scale_factor != spec.scale_factor || file.version != 1 {
        let AnswersFile { generator, scale_factor, version, .. } = file;
        return Err(damaged(format!(
            "{generator}, scale factor {scale_factor}, version {version}"
        )));
    }
    let group = |g: GroupSums| {
        let GroupSums { quantity, base_price, discount, disc_price, charge, count, .. } = g;
        let sums = Q1Sums { quantity, base_price, discount, disc_price, charge, count };
        ((g.returnflag, g.linestatus), sums)
    };
    Ok(Some(RowSums {
        q1: file.q1.map(|groups| groups.into_iter().map(group).collect()),
        q14: file.q14.map(|(promo, total)| Q14Sum { promo, total }),
    }))
}

/// Writes a new file beside the old one and renames it over: a reader finds one or the other.
fn store(spec: &TableSpec, sums: &RowSums) -> Result<(), TpchError> {
    let group = |(&(returnflag, linestatus), sums): (&(u8, u8), &Q1Sums)| {
        let &Q1Sums { quantity, base_price, discount, disc_price, charge, count } = sums;
        GroupSums {
            returnflag,
            linestatus,
            quantity,
            base_price,
            discount,
            disc_price,
            charge,
            count,
        }
    };
    let file = || AnswersFile {
        version: 1,
        generator: GENERATOR.to_owned(),
        scale_factor: spec.scale_factor,
        q1: sums.q1.as_ref().map(|groups| groups.iter().map(group).collect()),
        q14: sums.q14.map(|sum| (sum.promo, sum.total)),
        crc32c: 0,
    };
    let text = AnswersFile { crc32c: file().computed_crc(), ..file() }.text();
    let path = file_path(spec);
    let partial = path.with_extension(format!("json.partial-{}", std::process::id()));
    write_durably(&partial, text.as_bytes())
        .and_then(|()| fs::rename(&partial, &path))
        .map_err(|error| TpchError::io("write", &path, error))?;
    sync_directory_of(&path)
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The official answer to query 1 at scale factor 1.
fn official_q1() -> Vec<Q1Row> {
    const fn row(flags: [u8; 2], sums: [i128; 4], averages: [f64; 3], count_order: u64) -> Q1Row {
        Q1Row {
            returnflag: flags[0],
            linestatus: flags[1],
            sum_qty: sums[0],
            sum_base_price: sums[1],
            sum_disc_price: sums[2],
            sum_charge: sums[3],
            avg_qty: averages[0],
            avg_price: averages[1],
            avg_disc: averages[2],
            count_order,
        }
    }
    vec![
        row(
            *b"AF",
            [3_773_410_700, 5_658_655_440_073, 537_582_571_348_700, 55_909_065_222_827_692],
            [25.522005853257337, 38273.129734621674, 0.049985295838397614],
            1_478_493,
        ),
        row(
            *b"NF",
            [99_141_700, 148_750_471_038, 14_130_821_680_541, 1_469_649_223_194_375],
            [25.516471920522985, 38284.4677608483, 0.0500934266742163],
            38_854,
        ),
        row(
            *b"NO",
            [7_447_604_000, 11_170_172_969_774, 1_061_182_303_076_056, 110_367_043_872_497_010],
            [25.50222676958499, 38249.11798890827, 0.049996586053704085],
            2_920_374,
        ),
        row(
            *b"RF",
            [3_771_975_300, 5_656_804_138_090, 537_412_926_846_040, 55_889_619_119_831_932],
            [25.50579361269077, 38250.85462609966, 0.05000940583012706],
            1_478_870,
        ),
    ]
}

/// The official answer to query 14 at scale factor 1.
const OFFICIAL_Q14: Q14Reference =
    Q14Reference { promo_revenue_percent: Some(16.380778626395543), sum: None };
