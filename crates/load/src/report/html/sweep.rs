//! A sweep: latency against throughput, level by level, with the objective's line.

use std::fmt::Write;

use super::plot::{Axis, Plot, SIDE, over_label};
use super::{ROWS_MAX, escape, open_section};
use crate::report::number::{count, plain, quantity};
use crate::report::{LevelRow, Report};

pub fn section(out: &mut String, report: &Report) {
    if report.levels.is_empty() {
        return;
    }
    let lead = "Each point is a level, joined in the order of growing load, which stands beside it. Filled: all objectives \
                met. Hollow: not met. Dotted: void.";
    open_section(out, "sweep", "Throughput against latency", lead);
    out.push_str("<div class=\"two\">");
    let levels: Vec<&LevelRow> = report.levels.iter().take(ROWS_MAX).collect();
    chart(out, report, &levels, "ttft_p95", "TTFT p95", |level| level.ttft_p95);
    chart(out, report, &levels, "itl_p95", "ITL p95", |level| level.itl_p95);
    out.push_str("</div>");
    table(out, report, &levels);
    out.push_str("</section>");
}

fn chart(
    out: &mut String,
    report: &Report,
    levels: &[&LevelRow],
    metric: &str,
    name: &str,
    value: impl Fn(&LevelRow) -> Option<f64>,
) {
    let objective =
        report.slo.iter().flat_map(|slo| &slo.objectives).find(|objective| objective.metric == metric);
    let limit = objective.map(|objective| objective.limit).filter(|limit| limit.is_finite() && *limit > 0.0);
    let drawn: Vec<(&LevelRow, f64)> =
        levels.iter().filter_map(|level| level.throughput.and(Some((*level, value(level)?)))).collect();
    let finite = drawn.iter().map(|(_, ms)| *ms).filter(|ms| ms.is_finite() && *ms > 0.0).chain(limit);
    let (least, most) =
        finite.fold((f64::INFINITY, 0.0f64), |(least, most), ms| (least.min(ms), most.max(ms)));
    if most <= 0.0 {
        return;
    }
    let infinite = drawn.iter().any(|(_, ms)| ms.is_infinite());
    let y = Axis::log_ms(least * 0.8, most * if infinite { 3.0 } else { 1.25 }, 8);
    let y = if infinite { y.with_end("∞") } else { y };
    let most_tokens = drawn.iter().filter_map(|(level, _)| level.throughput).fold(0.0, f64::max);
    let x = Axis::linear(most_tokens * 1.04, plain);

    let (mut marks, mut over) = (String::new(), String::new());
    if let (Some(limit), Some(objective)) = (limit, objective) {
        let at = SIDE - y.at(limit);
        let _ = write!(marks, "<rect class=\"beyond\" x=\"0\" y=\"0\" width=\"{SIDE}\" height=\"{at:.1}\"/>");
        let _ = write!(marks, "<path class=\"limit\" d=\"M0 {at:.1}H{SIDE}\"/>");
        over_label(&mut over, "limit", 0.0, at, &escape::short(&objective.text, 60));
    }
    let place = |(level, ms): &(&LevelRow, f64)| (x.at(level.throughput.unwrap_or(0.0)), SIDE - y.at(*ms));
    let path: Vec<String> = drawn.iter().map(place).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = write!(marks, "<path class=\"joined\" d=\"M{}\"/>", path.join("L"));
    let labels =
        labels(&drawn.iter().map(|(level, _)| level.load).collect::<Vec<_>>(), |index| place(&drawn[index]));
    for (point, label) in drawn.iter().zip(labels) {
        let (level, ms) = point;
        let (left, top) = place(point);
        let state = match (level.void.is_empty(), level.passes) {
            (false, _) => "void",
            (true, Some(false)) => "missed",
            _ => "met",
        };
        // Towards the right end a label stands left of its point, where there is room.
        let side = if left > 0.85 * SIDE { " left" } else { "" };
        let unit = escape::short(&level.load_unit, 16);
        let _ = write!(
            over,
            "<span class=\"point {state}{side}\" tabindex=\"0\" style=\"left:{:.2}%;top:{:.2}%\" data-t=\"{} {unit}: {} tokens/s, {name} {}, {} errors\"><b>{}</b></span>",
            left / SIDE * 100.0,
            top / SIDE * 100.0,
            plain(level.load),
            quantity(level.throughput, ""),
            quantity(Some(*ms), "ms"),
            level.errors.map_or_else(|| "–".to_owned(), escape::percent),
            label,
        );
    }
    let summary = format!("{name} at {} levels of load; the table below has the numbers", drawn.len());
    let note = if metric == "itl_p95" { "between tokens" } else { "from the intended time" };
    let x_name = "output tokens a second";
    Plot { title: name, note, captioned: true, summary, x_name, x: &x, y: &y, height: 280.0, marks, over }
        .write(out);
}

/// Labels of the points. Points that lie close together share the label of the first of them.
fn labels(loads: &[f64], place: impl Fn(usize) -> (f64, f64)) -> Vec<String> {
    let mut labels = vec![String::new(); loads.len()];
    let mut owner = 0;
    for (index, load) in loads.iter().enumerate() {
        let ((x, y), (owner_x, owner_y)) = (place(index), place(owner));
        if index > 0 && (x - owner_x).abs() < 60.0 && (y - owner_y).abs() < 60.0 {
            let _ = write!(labels[owner], ", {}", plain(*load));
        } else {
            labels[index] = plain(*load);
            owner = index;
        }
    }
    labels
}

fn table(out: &mut String, report: &Report, levels: &[&LevelRow]) {
    let unit = levels.first().map_or(String::new(), |level| escape::short(&level.load_unit, 16));
    let _ = write!(
        out,
        "<div class=\"scroll\"><table><thead><tr><th>{unit}<th>calls<th>output tokens/s<th>TTFT p95<th>ITL p95<th>errors\
         <th class=\"l\">objectives</tr></thead><tbody>"
    );
    for (index, level) in levels.iter().enumerate() {
        let verdict = match (level.void.first(), level.passes) {
            (Some(reason), _) => format!("<span class=\"bad\">void</span> {}", escape::short(reason, 120)),
            (None, Some(true)) => "<span class=\"good\">met</span>".to_owned(),
            (None, Some(false)) => "<span class=\"bad\">not met</span>".to_owned(),
            (None, None) => "–".to_owned(),
        };
        let focus = if index == report.focus { " class=\"focus\"" } else { "" };
        let shown = if index == report.focus { " <em>shown in detail below</em>" } else { "" };
        let _ = write!(
            out,
            "<tr{focus}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"l\">{verdict}{shown}</tr>",
            plain(level.load),
            count(level.n),
            quantity(level.throughput, ""),
            quantity(level.ttft_p95, "ms"),
            quantity(level.itl_p95, "ms"),
            level.errors.map_or_else(|| "–".to_owned(), escape::percent),
        );
    }
    out.push_str("</tbody></table></div>");
    if report.levels.len() > levels.len() {
        let _ = write!(
            out,
            "<p class=\"caveat\">{} further levels are in the JSON file.</p>",
            report.levels.len() - levels.len()
        );
    }
}
