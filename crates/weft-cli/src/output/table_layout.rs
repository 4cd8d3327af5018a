//! How wide the columns of a table are, and which of them are left out, so that it fits.

/// The characters that a table is drawn with.
#[derive(Clone, Copy, Debug)]
pub struct Borders {
    /// Between rows.
    pub horizontal: char,
    /// Between columns.
    pub vertical: char,
    /// Left, between columns and right of the line at the top.
    pub top: [char; 3],
    /// The same below the header.
    pub middle: [char; 3],
    /// The same at the bottom.
    pub bottom: [char; 3],
    /// In place of rows that are left out.
    pub rows_omitted: &'static str,
}

impl Borders {
    /// Lines from the box-drawing characters.
    pub const BOX: Borders = Borders {
        horizontal: '─',
        vertical: '│',
        top: ['┌', '┬', '┐'],
        middle: ['├', '┼', '┤'],
        bottom: ['└', '┴', '┘'],
        rows_omitted: "⋮",
    };
    /// Lines from ASCII.
    pub const ASCII: Borders = Borders {
        horizontal: '-',
        vertical: '|',
        top: ['+'; 3],
        middle: ['+'; 3],
        bottom: ['+'; 3],
        rows_omitted: ":",
    };
}

/// A column of the drawn table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The result's column `index`, `width` characters wide.
    Column {
        /// Which one, from 0.
        index: usize,
        /// Characters between the spaces at its sides.
        width: usize,
    },
    /// Where columns are left out: one character, `…`.
    Gap,
}

impl Place {
    /// Characters between the spaces at its sides.
    pub fn width(self) -> usize {
        match self {
            Place::Column { width, .. } => width,
            Place::Gap => 1,
        }
    }
}

/// Characters below which a column is rather left out than shortened further.
const USEFUL_WIDTH: usize = 12;

/// What a column takes besides its content: a space at each side and a line.
const FRAME: usize = 3;

/// Places for columns that would like to be `wanted` characters wide in a table of at most
/// `available` characters; none: without a limit. The first and the last columns are kept.
pub fn fit(wanted: &[usize], available: Option<usize>) -> Vec<Place> {
    let place = |index, width| Place::Column { index, width };
    let natural = || wanted.iter().enumerate().map(|(index, &width)| place(index, width));
    let Some(available) = available else { return natural().collect() };
    let frames_and_content: usize = wanted.iter().map(|width| width + FRAME).sum();
    if frames_and_content < available {
        return natural().collect();
    }
    for kept in (1..=wanted.len()).rev() {
        let first = kept.div_ceil(2);
        let last = kept - first;
        let indexes: Vec<_> = (0..first).chain(wanted.len() - last..wanted.len()).collect();
        let gap = if kept < wanted.len() { 1 + FRAME } else { 0 };
        let frame = 1 + kept * FRAME + gap;
        let content: Vec<_> = indexes.iter().map(|&index| wanted[index]).collect();
        let least: usize = content.iter().map(|&width| width.min(USEFUL_WIDTH)).sum();
        if kept > 1 && least + frame > available {
            continue;
        }
        let widths = level(&content, available.saturating_sub(frame).max(kept));
        let mut places: Vec<_> =
            indexes.iter().zip(widths).map(|(&index, width)| place(index, width)).collect();
        if gap > 0 {
            places.insert(first, Place::Gap);
        }
        return places;
    }
    Vec::new()
}

/// The widths `wanted`, the largest of them cut to the same level so that their sum is at most
/// `total`; what is left over goes to the first of those.
fn level(wanted: &[usize], total: usize) -> Vec<usize> {
    let sum_at = |level: usize| wanted.iter().map(|&width| width.min(level)).sum::<usize>();
    let highest = wanted.iter().copied().max().unwrap_or(0);
    let (mut low, mut high) = (0, highest);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if sum_at(middle) <= total {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut rest = total.saturating_sub(sum_at(low));
    wanted
        .iter()
        .map(|&width| {
            let more = usize::from(width > low && rest > 0);
            rest -= more;
            width.min(low) + more
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fit` in words: widths, `…` for a gap.
    fn check(wanted: &[usize], available: usize, expected: &str) {
        let places = fit(wanted, Some(available));
        let total = 1 + places.iter().map(|place| place.width() + FRAME).sum::<usize>();
        assert!(total <= available.max(1 + 2 * (1 + FRAME)), "{total} > {available}");
        let words: Vec<_> = places
            .iter()
            .map(|place| match place {
                Place::Column { index, width } => format!("{index}:{width}"),
                Place::Gap => "…".to_owned(),
            })
            .collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn columns_share_what_there_is() {
        check(&[5, 10], 80, "0:5 1:10");
        check(&[5, 200], 80, "0:5 1:68");
        check(&[100, 5, 101], 80, "0:33 1:5 2:32");
        check(&[30, 30, 30, 30], 50, "0:12 1:12 … 3:12");
        check(&[4; 40], 50, "0:4 1:4 2:4 … 37:4 38:4 39:4");
        check(&[500], 20, "0:16");
        check(&[500, 500], 10, "0:2 …");
        check(&[500, 500], 1, "0:1 …");
    }

    #[test]
    fn nothing_limits_a_table_without_a_terminal() {
        assert_eq!(fit(&[1000], None), [Place::Column { index: 0, width: 1000 }]);
        assert_eq!(fit(&[], Some(80)), []);
    }
}
