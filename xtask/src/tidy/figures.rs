//! The figures of the whole code beside their targets. A missed target is marked; it fails nothing by itself, since a
//! median is nobody's single change.

use std::fmt;

/// What the checks count on their way.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Production lines of every file that has any.
    files: Vec<usize>,
    /// Lines of every production function.
    pub functions: Vec<usize>,
    /// Files that read the environment.
    pub env_readers: usize,
    /// Statics that can change.
    pub cells: usize,
    /// Mentions of the JSON value in `fleet`.
    pub json_in_fleet: usize,
    /// Results whose error is a string.
    pub string_errors: usize,
    /// `unwrap` and `expect` outside tests.
    pub unwraps: usize,
}

impl Figures {
    /// Notes a file's production lines; one that is all test does not count.
    pub(super) fn add_file(&mut self, lines: usize) {
        if lines > 0 {
            self.files.push(lines);
        }
    }

    fn unwraps_per_thousand(&self) -> f64 {
        let lines: usize = self.files.iter().sum();
        self.unwraps as f64 * 1000.0 / lines.max(1) as f64
    }
}

/// The value below which `percent` of the sorted values lie; 0 of none.
fn percentile(values: &[usize], percent: usize) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or_default()
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.functions.iter().max().copied().unwrap_or_default();
        let over = self.functions.iter().filter(|lines| **lines > 70).count();
        let rows = [
            ("file median, lines", percentile(&self.files, 50) as f64, 150.0),
            ("file p90, lines", percentile(&self.files, 90) as f64, 400.0),
            ("function median, lines", percentile(&self.functions, 50) as f64, 8.0),
            ("function p90, lines", percentile(&self.functions, 90) as f64, 30.0),
            ("function longest, lines", longest as f64, 70.0),
            ("functions over 70 lines", over as f64, 0.0),
            ("files reading the environment", self.env_readers as f64, 1.0),
            ("mutable statics", self.cells as f64, 0.0),
            ("JSON values in fleet", self.json_in_fleet as f64, 0.0),
            ("string errors", self.string_errors as f64, 0.0),
            ("unwraps per thousand lines", self.unwraps_per_thousand(), 0.5),
        ];
        let lines: usize = self.files.iter().sum();
        writeln!(out, "{} files, {} functions, {lines} lines that ship", self.files.len(), self.functions.len())?;
        for (name, value, target) in rows {
            let missed = if value > target { "  MISSED" } else { "" };
            let decimals = usize::from(value.fract() != 0.0);
            writeln!(out, "{name:30} {value:6.decimals$}   target ≤ {target}{missed}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        assert_eq!(percentile(&[3, 1, 2], 50), 2);
        assert_eq!(percentile(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 90), 9);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn a_missed_target_is_marked() {
        let figures = Figures { files: vec![160], cells: 0, ..Figures::default() };
        let text = figures.to_string();
        assert!(text.contains("target ≤ 150  MISSED"), "{text}");
        assert_eq!(text.matches("MISSED").count(), 1, "{text}");
    }
}
