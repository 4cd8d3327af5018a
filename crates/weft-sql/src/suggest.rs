//! "Did you mean": the known name that is nearest to an unknown one.

/// How many known names a hint lists at most.
const LISTED_MAX: usize = 12;

/// What to say about `name`, which is none of `known`: the nearest of them, else a list.
pub(crate) fn hint(what: &str, name: &str, known: &[&str]) -> Option<String> {
    if known.is_empty() {
        return None;
    }
    if let Some(nearest) = nearest(name, known) {
        return Some(format!("did you mean {nearest}?"));
    }
    let listed = known.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if known.len() > LISTED_MAX { ", …" } else { "" };
    Some(format!("{what}s: {listed}{more}"))
}

/// The known name with the fewest differences, if at most a third of the longer one differs.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    known
        .iter()
        .map(|known| {
            let chars: Vec<char> = known.to_lowercase().chars().collect();
            (distance(&wanted, &chars), wanted.len().max(chars.len()), *known)
        })
        .filter(|(distance, longer, _)| distance * 3 <= *longer)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., known)| known)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, a) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in right.iter().enumerate() {
            let replaced = previous[column] + usize::from(a != b);
            let mut best = replaced.min(previous[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *a == right[column - 1] && left[row - 1] == *b {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut previous, current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_name() {
        assert_eq!(nearest("lineitm", &["orders", "lineitem"]), Some("lineitem"));
        assert_eq!(nearest("nmae", &["id", "name"]), Some("name"));
        assert_eq!(nearest("zzz", &["orders", "lineitem"]), None);
    }

    #[test]
    fn lists_what_there_is() {
        assert_eq!(hint("table", "x", &["orders", "part"]), Some("tables: orders, part".into()));
        assert_eq!(hint("table", "x", &[]), None);
    }
}
