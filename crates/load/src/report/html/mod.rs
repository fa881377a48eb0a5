//! The report as one page that opens from disk: no network, no file beside it.
//!
//! **Invariants.** Text from servers and users passes [`escape::text`]. The page's own policy forbids it to load anything,
//! and to run any script but the one whose hash it names, so that a mistake here would still run nothing. Its size is
//! bounded by [`SIZE_MAX`], however long the run was.

use std::fmt::Write;

use crate::report::Report;

pub mod escape;

mod plot;

mod summary;

mod distributions;

mod sweep;

mod lanes;

mod timeline;

mod waterfall;

mod tables;

/// The page is smaller than this, for a run of a million calls as for one of ten: charts have a bounded number of marks,
/// tables a bounded number of rows, and texts from outside a bounded number of characters.
pub const SIZE_MAX: usize = 2 * 1024 * 1024; // bytes

/// Rows of a table that are shown.
const ROWS_MAX: usize = 100;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = String::with_capacity(256 * 1024);
    head(&mut out, report);
    match report.focused() {
        None => out.push_str("<p>No run to report.</p>"),
        Some(results) => {
            summary::header(&mut out, report, results);
            summary::figures(&mut out, report, results);
            summary::slo(&mut out, report);
            summary::verdict(&mut out, report);
            sweep::section(&mut out, report);
            tables::metrics(&mut out, report);
            distributions::section(&mut out, results);
            timeline::section(&mut out, results);
            waterfall::section(&mut out, results);
            tables::errors_and_health(&mut out, results);
            tables::definitions(&mut out, report);
        }
    }
    let _ = write!(
        out,
        "</main><div id=\"tip\" role=\"status\" hidden></div><script>{SCRIPT}</script></body></html>"
    );
    out
}

fn head(out: &mut String, report: &Report) {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        escape::sha256_base64(SCRIPT)
    );
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\
         <meta name=\"referrer\" content=\"no-referrer\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>",
        escape::text(&report.title)
    );
}

/// Opens a section with a heading; `id` is a word of ours.
fn open_section(out: &mut String, id: &str, title: &str, lead: &str) {
    let _ = write!(out, "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{title}</h2>");
    if !lead.is_empty() {
        let _ = write!(out, "<p class=\"lead\">{lead}</p>");
    }
}
