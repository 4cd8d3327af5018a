//! EXCLUDE: the rows around a row that its frame leaves out.
//!
//! What is kept of a frame are rows before those, the row itself if only its ties are left out, and rows behind. The ends of
//! each of the three only go forward from row to row, as those of frames do.

use std::ops::Range;

/// The rows that a frame leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The row.
    CurrentRow,
    /// The row and its peers.
    Group,
    /// Its peers.
    Ties,
}

/// What is kept of a frame: rows before those that are left out, the row itself, and rows behind. Each may be none.
pub(super) type Kept = [Range<usize>; 3];

impl Exclusion {
    /// True if peers matter.
    pub(super) fn has_peers(self) -> bool {
        self != Exclusion::CurrentRow
    }

    /// What is kept of the frame of a row.
    pub(super) fn kept(self, frame: &Range<usize>, row: usize, peers: &Range<usize>) -> Kept {
        let out = match self {
            Exclusion::CurrentRow => row..row + 1,
            Exclusion::Group | Exclusion::Ties => peers.clone(),
        };
        let before = frame.start..frame.end.min(out.start).max(frame.start);
        let behind = frame.start.max(out.end);
        let is_own_kept = self == Exclusion::Ties && frame.contains(&row);
        [before, row..row + usize::from(is_own_kept), behind..frame.end.max(behind)]
    }
}

/// All of a frame.
pub(super) fn all(frame: Range<usize>) -> Kept {
    let end = frame.end;
    [frame, end..end, end..end]
}

/// How what is held of one frame becomes what is held of the next one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Nothing stays.
    pub(super) is_anew: bool,
    /// Rows that go out, by the part that they are of.
    pub(super) out: Kept,
    /// Rows that come in.
    pub(super) come: Kept,
}

impl Change {
    /// The change from one frame to the next; rows may go out one by one if what is held `removes_any`.
    pub(super) fn between(from: &Kept, to: &Kept, removes_any: bool) -> Change {
        let rows = |kept: &Kept| kept.iter().map(Range::len).sum::<usize>();
        let anew = Change { is_anew: true, out: [0..0, 0..0, 0..0], come: to.clone() };
        if removes_any {
            let mut change = Change { is_anew: false, out: from.clone(), come: to.clone() };
            for (out, come) in change.out.iter_mut().zip(&mut change.come) {
                let goes_on =
                    out.start <= come.start && come.start < out.end && out.end <= come.end;
                if goes_on {
                    (*out, *come) = (out.start..come.start, out.end..come.end);
                }
            }
            return if rows(&change.out) + rows(&change.come) < rows(to) { change } else { anew };
        }
        let [before, own, behind] = from;
        let is_more = own.is_empty()
            && behind.is_empty()
            && before.start == to[0].start
            && before.end <= to[0].end;
        if !is_more {
            return anew;
        }
        let [first, own, behind] = to.clone();
        Change {
            is_anew: false,
            out: [0..0, 0..0, 0..0],
            come: [before.end..first.end, own, behind],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_left_out() {
        let kept = |exclusion: Exclusion, frame| {
            let kept = exclusion.kept(&frame, 5, &(4..7));
            kept.into_iter().filter(|range| !range.is_empty()).flatten().collect::<Vec<_>>()
        };
        assert_eq!(kept(Exclusion::CurrentRow, 3..8), [3, 4, 6, 7]);
        assert_eq!(kept(Exclusion::Group, 3..8), [3, 7]);
        assert_eq!(kept(Exclusion::Ties, 3..8), [3, 5, 7]);
        for exclusion in [Exclusion::CurrentRow, Exclusion::Group, Exclusion::Ties] {
            assert_eq!(kept(exclusion, 1..3), [1, 2]);
            assert_eq!(kept(exclusion, 8..9), [8]);
            assert!(kept(exclusion, 8..8).is_empty());
        }
        assert_eq!(kept(Exclusion::Ties, 6..9), [7, 8]);
        assert!(kept(Exclusion::CurrentRow, 5..6).is_empty());
    }

    #[test]
    fn changes_lead_from_one_frame_to_the_next() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let mut range = |least: usize| {
                let start = least + random.usize(..4);
                start..start + random.usize(..6)
            };
            let from = [range(0), range(20), range(40)];
            let to = from.clone().map(|of| {
                let start = of.start + random.usize(..5);
                start..of.end.max(start) + random.usize(..3)
            });
            let rows = |kept: &Kept| kept.iter().cloned().flatten().collect::<Vec<usize>>();
            for removes_any in [false, true] {
                let Change { is_anew, out, come } = Change::between(&from, &to, removes_any);
                assert!(removes_any || rows(&out).is_empty());
                let mut held = if is_anew { Vec::new() } else { rows(&from) };
                for row in rows(&out) {
                    held.remove(held.iter().position(|held| *held == row).unwrap());
                }
                held.extend(rows(&come));
                if removes_any {
                    held.sort_unstable();
                }
                assert_eq!(held, rows(&to), "{from:?}, {to:?}");
            }
        }
    }
}
