//! A join and its answer, by a nested loop.

use std::sync::Arc;

use weft_exec::Lane;
use weft_exec::join::{Kind, Nulls};
use weft_exec::program::Register;
use weft_exec::query::PartitionMode;

use crate::tables::{Side, Texts};

/// A join to be run, and what it is run with.
pub(crate) struct Case {
    pub(crate) build: Arc<Side>,
    pub(crate) probe: Arc<Side>,
    pub(crate) nulls: Vec<Nulls>,
    /// Keys that a filter is asked about before the probe, if that may drop rows.
    pub(crate) asked: Vec<usize>,
    pub(crate) kind: Kind,
    pub(crate) marks_build: bool,
    pub(crate) has_residual: bool,
    pub(crate) vector_rows: usize,
    pub(crate) mode: PartitionMode,
    pub(crate) texts: Arc<Texts>,
}

/// What a join gives: numbers of the probe side's row and of the build side's, and the mark.
pub(crate) type Row = (i64, Option<i64>, Option<bool>);

impl Case {
    pub(crate) fn random(random: &mut fastrand::Rng) -> Case {
        let keys = [1, 1, 1, 2, 3][random.usize(..5)];
        let lanes: Vec<Lane> =
            (0..keys).map(|_| Lane::ALL[random.usize(..Lane::ALL.len())]).collect();
        let domain = [1, 3, 20, 100][random.usize(..4)];
        let hash_mask = [u64::MAX, u64::MAX, 0xf000_0000_0000_0fff, 0][random.usize(..4)];
        let side = |random: &mut fastrand::Rng| {
            let rows = [0, 1, 40, 300][random.usize(..4)];
            Arc::new(Side::random(random, rows, &lanes, domain, hash_mask))
        };
        let (build, probe) = (side(random), side(random));
        let meanings = [Nulls::Never, Nulls::Equal, Nulls::Unknown];
        let same = meanings[random.usize(..3)];
        let is_mixed = random.u8(..) < 64;
        let nulls =
            (0..keys).map(|_| if is_mixed { meanings[random.usize(..3)] } else { same }).collect();
        let kinds =
            [Kind::Inner, Kind::Outer, Kind::Semi, Kind::Anti, Kind::Mark { out: Register(0) }];
        let marks_build = random.u8(..) < 64;
        let kind = if marks_build && random.bool() {
            Kind::Nothing
        } else {
            kinds[random.usize(..kinds.len())]
        };
        // Not all keys once in their order: their hash would be the tuples', which is another one here.
        let asked = if keys == 1 { vec![0, 0] } else { vec![random.usize(..keys)] };
        Case {
            build,
            probe,
            nulls,
            asked,
            kind,
            marks_build,
            has_residual: random.u8(..) < 80,
            vector_rows: [1, 7, 2048][random.usize(..3)],
            mode: [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never]
                [random.usize(..3)],
            texts: Arc::new(Texts::new(domain)),
        }
    }

    /// What a pair is, apart from the residual condition: `None` if that is unknown.
    pub(crate) fn compare(&self, probe: usize, build: usize) -> Option<bool> {
        let mut is_unknown = false;
        for (key, nulls) in self.nulls.iter().enumerate() {
            let pair = (self.probe.keys[key][probe], self.build.keys[key][build]);
            match (pair, nulls) {
                ((Some(a), Some(b)), _) if a == b => {}
                ((None, None), Nulls::Equal) => {}
                ((None, _) | (_, None), Nulls::Unknown) => is_unknown = true,
                _ => return Some(false),
            }
        }
        if is_unknown { None } else { Some(true) }
    }

    /// What the residual condition says of two rows.
    fn is_true(&self, probe: usize, build: usize) -> bool {
        match (self.probe.sizes[probe], self.build.sizes[build]) {
            (Some(a), Some(b)) => !self.has_residual || a < b,
            _ => !self.has_residual,
        }
    }

    /// The answer, and which of the build side's rows have matched.
    pub(crate) fn expected(&self) -> (Vec<Row>, Vec<bool>) {
        let (mut rows, mut matched) = (Vec::new(), vec![false; self.build.rows()]);
        for probe in 0..self.probe.rows() {
            let number = self.probe.numbers[probe];
            let (mut matches, mut is_unknown) = (Vec::new(), false);
            for (build, matched) in matched.iter_mut().enumerate() {
                if !self.is_true(probe, build) {
                    continue;
                }
                match self.compare(probe, build) {
                    Some(true) => {
                        *matched = true;
                        matches.push(self.build.numbers[build]);
                    }
                    Some(false) => {}
                    None => is_unknown = true,
                }
            }
            let has_match = !matches.is_empty();
            match self.kind {
                Kind::Inner | Kind::Outer => {
                    rows.extend(matches.iter().map(|build| (number, Some(*build), None)));
                    if self.kind == Kind::Outer && !has_match {
                        rows.push((number, None, None));
                    }
                }
                Kind::Semi if has_match => rows.push((number, None, None)),
                Kind::Anti if !has_match && !is_unknown => rows.push((number, None, None)),
                Kind::Mark { .. } => {
                    let mark = if has_match || !is_unknown { Some(has_match) } else { None };
                    rows.push((number, None, mark));
                }
                Kind::Semi | Kind::Anti | Kind::Nothing => {}
            }
        }
        (rows, matched)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{:?} {:?} build {} probe {} keys {:?} marks {} residual {} vectors {} {:?}",
            self.kind,
            self.nulls,
            self.build.rows(),
            self.probe.rows(),
            self.build.lanes,
            self.marks_build,
            self.has_residual,
            self.vector_rows,
            self.mode
        )
    }
}

/// A join of many rows by a key of 64 bits.
pub(crate) fn large(seed: u64, build: usize, probe: usize, domain: u32) -> Case {
    let mut random = fastrand::Rng::with_seed(seed);
    let lanes = [Lane::I64];
    Case {
        build: Arc::new(Side::random(&mut random, build, &lanes, domain, u64::MAX)),
        probe: Arc::new(Side::random(&mut random, probe, &lanes, domain, u64::MAX)),
        nulls: vec![Nulls::Never],
        asked: vec![0, 0],
        kind: Kind::Inner,
        marks_build: false,
        has_residual: false,
        vector_rows: 2048,
        mode: PartitionMode::Adaptive,
        texts: Arc::new(Texts::new(1)),
    }
}
