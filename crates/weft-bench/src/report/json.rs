//! Points as JSON lines: one object per line, so that runs can be appended, filtered and joined with
//! ordinary tools, and read back to redraw a report.

use super::{Point, ReportError};

/// One line of JSON per point, each ended by a newline.
///
/// # Errors
/// [`ReportError::Json`] if a point cannot be serialized.
pub fn to_lines(points: &[Point]) -> Result<String, ReportError> {
    let mut lines = String::new();
    for point in points {
        lines.push_str(&serde_json::to_string(point).map_err(ReportError::Json)?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Reads points back from JSON lines. Empty lines are skipped, fields not known here are ignored.
///
/// # Errors
/// [`ReportError::JsonLine`] with the number of the first line that is not a point.
pub fn from_lines(lines: &str) -> Result<Vec<Point>, ReportError> {
    let numbered = lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    numbered
        .map(|(index, line)| {
            serde_json::from_str(line)
                .map_err(|source| ReportError::JsonLine { line: index + 1, source })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn points_survive_the_round_trip() {
        let points = synthetic::paper_points();
        let lines = to_lines(&points).unwrap();
        assert_eq!(lines.lines().count(), points.len());
        assert_eq!(from_lines(&lines).unwrap(), points);
    }

    #[test]
    fn a_broken_line_is_named() {
        let lines = format!("{}\n{{oops\n", to_lines(&[synthetic::complete_point()]).unwrap());
        let error = from_lines(&lines).unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }
}
