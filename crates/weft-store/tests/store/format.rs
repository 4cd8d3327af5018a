//! A reader of the files that knows only `docs/FILE_FORMAT.md`: if it finds other rows than the store, one
//! of the three is wrong.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use weft_buffer::page::checksum;
use weft_codec::{Block, Zone};
use weft_rt::io::DriverKind;
use weft_store::*;

use crate::support::*;

/// The front of some bytes.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u32(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().unwrap()) as usize
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn text(&mut self) -> &'a str {
        let len = self.u32();
        std::str::from_utf8(self.take(len)).unwrap()
    }

    fn optional_text(&mut self) -> Option<&'a str> {
        (self.u8() == 1).then(|| self.text())
    }
}

fn check_beginning(bytes: &[u8], kind: &[u8; 8]) {
    assert_eq!(&bytes[..8], kind);
    assert_eq!(&bytes[8..12], [4, 0, 0, 0]);
    let rest = checksum(&bytes[16..]).to_le_bytes();
    let crc = checksum(&[&bytes[..12], &rest].concat());
    assert_eq!(bytes[12..16], crc.to_le_bytes());
}

/// What is stored at a unit of a data file, put together from its pages.
fn stored(data: &[u8], device: u8, start: u64, len: usize, wanted: u32, kind: u8) -> Vec<u8> {
    let (mut found, mut at, mut sum) = (Vec::new(), start, 0u32);
    while found.len() < len {
        let payload = (len - found.len()).min(1_048_560);
        let units = (payload + 16).div_ceil(4096);
        let page = &data[at as usize * 4096..][..units * 4096];
        let crc = checksum(&page[4..]);
        assert_eq!(page[..4], crc.to_le_bytes());
        assert_eq!(page[4..8], [0, 0, kind, (units - 1) as u8]);
        let id = u64::from(device) << 55 | (units as u64 - 1) << 47 | at;
        assert_eq!(page[8..16], id.to_le_bytes());
        assert!(page[16 + payload..].iter().all(|byte| *byte == 0));
        found.extend_from_slice(&page[16..16 + payload]);
        sum = sum.rotate_left(1) ^ crc;
        at += units as u64;
    }
    assert_eq!(sum, wanted, "the checksum of what is stored");
    found
}

/// The rows of all row groups of a segment with columns `n` (Int64) and `text` (Utf8).
fn read_segment(bytes: &[u8], data: &[u8], rows: &mut Vec<(i64, String)>) {
    let mut bytes = Bytes(bytes);
    assert_eq!((bytes.u64(), bytes.u32()), (1, 2));
    for _ in 0..bytes.u32() {
        assert_eq!(bytes.u64(), rows.len() as u64, "row ids");
        let group_rows = bytes.u32();
        assert_eq!((bytes.u32(), bytes.u64(), bytes.u64()), (0, 0, 0));
        let (device, start, _units) = (bytes.u8(), bytes.u64(), bytes.u64());
        let mut columns: [Vec<String>; 2] = Default::default();
        for (number, column) in columns.iter_mut().enumerate() {
            let block_rows = bytes.u32();
            assert!(block_rows == group_rows || block_rows.is_power_of_two() && block_rows >= 1024);
            for _ in 0..group_rows.div_ceil(block_rows) {
                let (unit, len, sum) = (bytes.u32() as u64, bytes.u32(), bytes.u32() as u32);
                let zone = Zone::read(&mut bytes.0).unwrap();
                let block = stored(data, device, start + unit, len, sum, 1);
                let array = Block::open(&block).unwrap().decode().unwrap();
                assert_eq!(zone, weft_codec::zone(&array));
                column.extend((0..array.len()).map(|row| match number {
                    0 => array.as_primitive::<Int64Type>().value(row).to_string(),
                    _ => array.as_string_view().value(row).to_owned(),
                }));
            }
        }
        let [numbers, texts] = columns;
        let numbers = numbers.into_iter().map(|number| number.parse().unwrap());
        rows.extend(numbers.zip(texts));
    }
    assert!(bytes.0.is_empty());
}

fn read_database(path: &Path) -> Vec<(i64, String)> {
    let manifest = std::fs::read(path.join("MANIFEST")).unwrap();
    let data = std::fs::read(path.join("data-0.weft")).unwrap();
    assert_eq!(manifest, std::fs::read(path.join("MANIFEST.copy")).unwrap());
    check_beginning(&manifest, b"WEFTMANI");
    check_beginning(&data[..4096], b"WEFTDATA");
    let mut bytes = Bytes(&manifest[16..]);
    assert_eq!(bytes.u64(), 4, "generation: made, and three commits");
    let identity = bytes.take(16);
    assert_eq!(&data[16..32], identity);
    assert!(data[32..4096].iter().all(|byte| *byte == 0), "device 0");
    let body = bytes.u64() as usize;
    assert_eq!(manifest.len(), (48 + body).next_multiple_of(4096));
    assert_eq!((bytes.u32(), bytes.text()), (1, ""));
    assert_eq!((bytes.u32(), bytes.text(), bytes.text()), (1, "threads", "2"));
    assert_eq!((bytes.u32(), bytes.text(), bytes.text()), (1, "v", "SELECT 1"));
    assert_eq!((bytes.u64(), bytes.u32(), bytes.text()), (2, 1, "t"));
    assert_eq!(bytes.u32(), 2);
    assert_eq!((bytes.text(), bytes.u8(), bytes.u8(), bytes.optional_text()), ("n", 4, 0, None));
    let text = (bytes.text(), bytes.u8(), bytes.u8(), bytes.optional_text());
    assert_eq!((text, bytes.u32()), (("text", 12, 3, Some("'x'")), 2_500_000));
    let (id, next_row) = (bytes.u64(), bytes.u64());
    let mut rows = Vec::new();
    for _ in 0..bytes.u32() {
        let (device, start, len, sum) = (bytes.u8(), bytes.u64(), bytes.u32(), bytes.u32());
        let before = rows.len();
        let segment = stored(&data, device, start, len, sum as u32, 2);
        read_segment(&segment, &data, &mut rows);
        bytes.u32();
        assert_eq!(bytes.u64(), (rows.len() - before) as u64);
        bytes.u64();
        for _ in 0..bytes.u32() {
            assert_eq!(bytes.u8(), 0);
            assert!(bytes.u64() > 0 && bytes.u64() > 0);
        }
    }
    assert_eq!((id, next_row), (1, rows.len() as u64));
    assert_eq!(bytes.u8(), 1, "the table has statistics");
    let (device, start, len, sum) = (bytes.u8(), bytes.u64(), bytes.u32(), bytes.u32());
    check_statistics(&stored(&data, device, start, len, sum as u32, 3), &rows[..2_900]);
    check_index(&mut bytes, &data, &rows);
    assert_eq!((bytes.u32(), bytes.text(), bytes.text()), (1, "t_check", "n > 0"));
    assert_eq!((bytes.u32(), bytes.text(), bytes.u64()), (1, "t_fkey", 1));
    assert_eq!((bytes.u32(), bytes.u32(), bytes.u32()), (1, 0, 0));
    rows
}

/// The one index, of numbers, which are unique: its root leads to places of nodes, whose leaves have the keys.
fn check_index(bytes: &mut Bytes<'_>, data: &[u8], rows: &[(i64, String)]) {
    assert_eq!((bytes.u32(), bytes.text(), bytes.u8()), (1, "t_n_key", 5));
    assert_eq!((bytes.u32(), bytes.u32(), bytes.u8()), (1, 0, 1), "numbers, descending");
    let root = bytes.u64();
    let extents: Vec<(u8, u64, u64)> =
        (0..bytes.u32()).map(|_| (bytes.u8(), bytes.u64(), bytes.u64())).collect();
    let page = |id: u64| {
        let (unit, units) = (id & ((1 << 47) - 1), (id >> 47 & 255) + 1);
        assert_eq!((id >> 55, units), (0, 2), "8 KiB of device 0");
        let lies_in = |(_, start, len): &(u8, u64, u64)| (*start..start + len).contains(&unit);
        assert!(extents.iter().any(lies_in), "unit {unit}");
        let page = &data[unit as usize * 4096..][..8192];
        assert_eq!(page[..4], checksum(&page[4..]).to_le_bytes());
        assert_eq!(page[8..16], id.to_le_bytes());
        page
    };
    let directory = page(root);
    assert_eq!((directory[6], &directory[16..22]), (33, &b"WIX1\0\x01"[..]));
    assert_eq!(directory[32..40], (rows.len() as u64).to_le_bytes());
    let count = u32::from_le_bytes(directory[24..28].try_into().unwrap()) as usize;
    let mut found = Vec::new();
    for number in 0..count {
        let id = Bytes(&directory[168 + 8 * number..]).u64();
        if id >> 55 == 255 {
            continue;
        }
        let node = page(id);
        assert_eq!((node[6], node[19]), (32, 183));
        if node[16] == 0 {
            let prefix = u16::from_le_bytes([node[22], node[23]]) as usize;
            let low = Bytes(&node[32..]).u32();
            for slot in 0..u16::from_le_bytes([node[20], node[21]]) as usize {
                let slot = &node[128 + 8 * slot..];
                let at = 4 * u16::from_le_bytes([slot[4], slot[5]]) as usize;
                let len = u16::from_le_bytes([slot[6], slot[7]]) as usize;
                let head: Vec<u8> = slot[..4].iter().rev().copied().take(len).collect();
                let rest = &node[at + 8..][..len.saturating_sub(4)];
                let key = [&node[low..low + prefix], &head, rest].concat();
                let turned = u64::from_be_bytes(key.try_into().unwrap());
                let number = (!turned ^ 1 << 63) as i64;
                found.push((number, Bytes(&node[at..]).u64()));
            }
        }
    }
    found.sort_unstable_by_key(|(_, row)| *row);
    let expected: Vec<(i64, u64)> = rows.iter().map(|row| row.0).zip(0..).collect();
    assert_eq!(found, expected);
}

/// The registers of a sketch of hashes.
fn sketch(hashes: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut registers = vec![0; 1024];
    for hash in hashes {
        let register: &mut u8 = &mut registers[(hash % 1024) as usize];
        *register = (*register).max((hash >> 10).trailing_zeros().min(54) as u8 + 1);
    }
    registers
}

/// Statistics of rows of which all fit into the sample.
fn check_statistics(bytes: &[u8], rows: &[(i64, String)]) {
    let mut bytes = Bytes(bytes);
    assert_eq!((bytes.u64(), bytes.u32(), bytes.u64()), (1, 2, rows.len() as u64));
    assert_eq!(bytes.u32(), rows.len());
    let keys: Vec<u64> = rows.iter().map(|_| bytes.u64()).collect();
    assert!(keys.is_sorted());
    let mix = |number: i64| {
        let hash = (number as u64).wrapping_mul(0x9E3779B97F4A7C15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8FEB86659FD93);
        hash ^ hash >> 32
    };
    assert_eq!(bytes.u32(), 1024);
    assert_eq!(bytes.take(1024), sketch(rows.iter().map(|(n, _)| mix(*n))));
    assert_eq!(bytes.u32(), 1024);
    let hashes = rows.iter().map(|(_, text)| twox_hash::XxHash64::oneshot(0, text.as_bytes()));
    assert_eq!(bytes.take(1024), sketch(hashes));
    let mut column = || {
        let len = bytes.u32();
        Block::open(bytes.take(len)).unwrap().decode().unwrap()
    };
    let (numbers, texts) = (column(), column());
    let numbers = numbers.as_primitive::<Int64Type>().values().iter().copied();
    let mut sample: Vec<(i64, &str)> =
        numbers.zip(texts.as_string_view().iter().flatten()).collect();
    sample.sort_unstable();
    assert!(sample.into_iter().eq(rows.iter().map(|(n, text)| (*n, &text[..256]))));
    assert!(bytes.0.is_empty());
}

#[test]
fn the_files_are_as_they_are_described() {
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("db");
    let store = open(&Directory::Os(path.clone()), &runtime(DriverKind::Auto, 1));
    let mut schema = table("t", &[("n", arrow_schema::DataType::Int64)]);
    schema.columns[0].nullable = false;
    schema.columns.push(Column {
        name: "text".into(),
        data_type: arrow_schema::DataType::Utf8,
        nullable: true,
        default: Some("'x'".into()),
        max_length: Some(2_500_000),
        kind: None,
    });
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = |len: usize| (0..len).map(|_| random.alphanumeric()).collect::<String>();
    let mut rows: Vec<(i64, String)> = (0..3_000).map(|n| (n * n, text(300))).collect();
    rows.push((-5, text(2_500_000)));
    let batch = |rows: &[(i64, String)]| {
        let numbers = arrow_array::Int64Array::from_iter_values(rows.iter().map(|(n, _)| *n));
        let texts = rows.iter().map(|(_, text)| Some(text.as_str()));
        let texts = texts.collect::<arrow_array::StringViewArray>();
        let columns: Vec<arrow_array::ArrayRef> =
            vec![std::sync::Arc::new(numbers), std::sync::Arc::new(texts)];
        arrow_array::RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
    };
    let mut definition = index("t_n_key", &[0], true);
    definition.is_constraint = true;
    definition.columns[0].is_descending = true;
    let check = Check { name: "t_check".into(), sql: "n > 0".into() };
    let (columns, parent_columns) = (vec![0], vec![0]);
    let key = ForeignKey { name: "t_fkey".into(), columns, parent: 0, parent_columns };
    store
        .commit_blocking(vec![
            Change::CreateTable { schema: schema.clone(), or_replace: false },
            Change::CreateView { name: "v".into(), sql: "SELECT 1".into(), or_replace: false },
            Change::SetOption { name: "threads".into(), value: Some("2".into()) },
            Change::CreateIndex { table: "t".into(), expected: None, definition },
            Change::AddCheck { table: "t".into(), check },
            Change::AddForeignKey { table: "t".into(), parent: "t".into(), key },
        ])
        .unwrap();
    append(&store, &schema, &[batch(&rows[..2_900])]);
    append(&store, &schema, &[batch(&rows[2_900..])]);
    drop(store);
    assert!(read_database(&path) == rows);
}
