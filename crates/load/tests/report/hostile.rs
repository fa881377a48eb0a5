//! A report in which every text that comes from a server or a user is an attack.

use load::report::Report;
use load::sample::Outcome;
use load::schedule::Pacing;

use crate::made_up::{self, Made};

/// Leaves an element, an attribute, a script, a comment, a style and a terminal; looks like a formula; and is long.
pub fn payload() -> String {
    let attack = "=1+1\"'`><script>alert(1)</script><img src=x onerror=alert(2)>--></style></title>&#60;b&#62;\
                  \u{1b}]0;owned\u{7}\u{1b}[2J\r\n\u{202e}\u{0}${7*7} http://evil.example/ ";
    attack.repeat(40)
}

/// A sweep whose texts are all [`payload`].
pub fn report() -> Report {
    let mut report = made_up::sweep(Made { seconds: 30.0, ..Made::default() }, &[2.0, 6.0, 9.0]);
    let set = |text: &mut String| *text = payload();
    set(&mut report.title);
    for row in &mut report.metrics {
        set(&mut row.definition);
        row.note = Some(payload());
        if let Some(ci) = &mut row.ci95 {
            set(&mut ci.of);
        }
    }
    // Some keep their names, by which the page picks them out.
    for row in report.metrics.iter_mut().filter(|row| !["TTFT", "ITL", "E2E"].contains(&row.name.as_str())) {
        set(&mut row.name);
        set(&mut row.unit);
    }
    for level in &mut report.levels {
        set(&mut level.load_unit);
    }
    report.levels[0].void = vec![payload()];
    let slo = report.slo.as_mut().unwrap();
    for objective in &mut slo.objectives {
        set(&mut objective.text);
        set(&mut objective.unit);
    }
    set(&mut slo.capacity_unit);
    (slo.binds, slo.binding_stage) = (Some(payload()), Some(payload()));
    slo.evidence.iter_mut().for_each(set);
    slo.cost = vec![(payload(), payload())];
    for answer in &mut report.verdict {
        set(&mut answer.question);
        set(&mut answer.answer);
        answer.evidence.iter_mut().for_each(set);
    }
    for results in &mut report.results {
        for text in
            [&mut results.tool, &mut results.workload, &mut results.target.url, &mut results.target.kind]
        {
            set(text);
        }
        set(&mut results.target.model);
        set(&mut results.target.endpoint);
        results.pacing = Pacing::Open { description: payload(), mean_per_s: None };
        results.health.void = vec![payload(); 50];
        results.outcomes = (0..50).map(|at| (format!("{at}{}", payload()), 1)).collect();
        for (at, sample) in results.samples.iter_mut().enumerate() {
            set(&mut sample.body);
            set(&mut sample.server.kind);
            sample.server.left_out = Some(format!("{at} {}", payload()));
            sample.finish_reason = Some(payload());
            let detail = format!("={at}{}", payload());
            sample.outcome = match at % 8 {
                0 => Outcome::Refused { detail },
                1 => Outcome::ErrorInBand { detail },
                2 => Outcome::ConnectionFailed { detail },
                3 => Outcome::Malformed { detail },
                _ => continue,
            };
        }
    }
    report
}
