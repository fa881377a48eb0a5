//! One table of what was measured: medians, ranges and ratios.

use std::fmt::Write;

/// One cell on one model.
pub struct Row {
    model: String,
    cell: String,
    pub ours: Series,
    /// llama.cpp's variants; the one with the best median counts.
    pub theirs: Vec<Series>,
}

/// Speeds of one engine in one setting, in tokens per second.
pub struct Series {
    pub name: String,
    speeds: Vec<f64>,
}

impl Series {
    pub fn new(name: &str) -> Series {
        Series { name: name.to_owned(), speeds: Vec::new() }
    }

    pub fn push(&mut self, speed: f64) {
        self.speeds.push(speed);
    }

    /// The middle one, or the mean of the two in the middle.
    fn median(&self) -> f64 {
        let mut sorted = self.speeds.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.len() / 2, sorted.len() % 2) {
            (_, _) if sorted.is_empty() => f64::NAN,
            (middle, 1) => sorted[middle],
            (middle, _) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    fn range(&self) -> String {
        let least = self.speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.speeds.iter().copied().fold(0.0, f64::max);
        format!("{}-{}", short(least), short(most))
    }
}

impl Row {
    pub fn new(model: &str, cell: &str, variants: &[&str]) -> Row {
        let theirs = variants.iter().map(|name| Series::new(name)).collect();
        Row { model: model.to_owned(), cell: cell.to_owned(), ours: Series::new("ours"), theirs }
    }

    /// The last run's speeds, for the impatient.
    pub fn latest(&self) -> String {
        let shown = |series: &Series| {
            format!("{} {}", series.name, series.speeds.last().map_or(String::new(), |s| short(*s)))
        };
        std::iter::once(&self.ours).chain(&self.theirs).map(shown).collect::<Vec<_>>().join(", ")
    }

    fn best(&self) -> Option<&Series> {
        self.theirs.iter().max_by(|a, b| a.median().total_cmp(&b.median()))
    }
}

/// The table, with what its figures are.
pub fn print(rows: &[Row], runs: usize, threads: usize) -> String {
    let mut lines = vec![
        ["model", "cell", "ours tok/s", "range", "llama.cpp tok/s", "range", "its setting", "ratio"]
            .map(str::to_owned),
    ];
    for row in rows {
        let Some(best) = row.best() else { continue };
        let (ours, theirs) = (row.ours.median(), best.median());
        lines.push([
            row.model.clone(),
            row.cell.clone(),
            short(ours),
            row.ours.range(),
            short(theirs),
            best.range(),
            best.name.clone(),
            format!("{:.2}", ours / theirs),
        ]);
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(&widths).enumerate().map(|(column, (text, width))| match column {
            0 | 1 | 6 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        let _ = writeln!(out, "| {} |", padded.collect::<Vec<_>>().join(" | "));
        if index == 0 {
            let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join(" | ");
            let _ = writeln!(out, "| {rule} |");
        }
    }
    let plural = if runs == 1 { "run" } else { "alternating runs" };
    let _ = write!(
        out,
        "\nMedians of {runs} {plural}, {threads} threads each, F16 KV cache. Of llama.cpp's settings (plain, with flash \
         attention, with one KV cache for all) the faster one counts. Ratio above 1: ours is faster."
    );
    out
}

/// Three digits that mean something.
fn short(speed: f64) -> String {
    if speed >= 100.0 { format!("{speed:.0}") } else { format!("{speed:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, speeds: &[f64]) -> Series {
        Series { name: name.to_owned(), speeds: speeds.to_vec() }
    }

    #[test]
    fn a_median_is_not_moved_by_one_slow_run() {
        assert_eq!(series("a", &[10.0, 1.0, 11.0]).median(), 10.0);
        assert_eq!(series("a", &[4.0, 2.0]).median(), 3.0);
        assert!(series("a", &[]).median().is_nan());
    }

    #[test]
    fn the_peers_better_setting_counts() {
        let mut row = Row::new("m", "decode", &[]);
        row.ours = series("ours", &[30.0]);
        row.theirs = vec![series("plain", &[20.0, 21.0, 22.0]), series("fa", &[5.0, 99.0, 6.0])];
        let text = print(&[row], 3, 2);
        let line = text.lines().nth(2).unwrap();
        assert_eq!(
            line,
            "| m     | decode |       30.0 | 30.0-30.0 |            21.0 | 20.0-22.0 | plain       |  1.43 |"
        );
    }
}
