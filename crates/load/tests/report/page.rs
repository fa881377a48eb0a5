use std::collections::BTreeSet;

use load::report::html::{SIZE_MAX, escape, page};

use crate::hostile;
use crate::made_up::{self, Made};

/// A page's elements with the names of their attributes, read as a browser would, scripts and styles aside.
fn elements(page: &str) -> BTreeSet<(String, BTreeSet<String>)> {
    let mut found = BTreeSet::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let tag: String =
            rest.chars().take_while(|char| char.is_alphanumeric() || "/!".contains(*char)).collect();
        rest = &rest[tag.len()..];
        let mut names = BTreeSet::new();
        // What is left of the tag: names, and values in double quotes.
        loop {
            rest = rest.trim_start_matches([' ', '/']);
            let name: String = rest.chars().take_while(|char| !" =>/\"'".contains(*char)).collect();
            rest = &rest[name.len()..];
            if let Some(value) = rest.strip_prefix("=\"") {
                rest = &value[value.find('"').unwrap() + 1..];
            }
            if !name.is_empty() {
                names.insert(name);
            }
            if let Some(after) = rest.strip_prefix('>') {
                rest = after;
                break;
            }
            assert!(rest.starts_with([' ', '/']), "a tag is torn: <{tag} … {}", &rest[..60.min(rest.len())]);
        }
        if tag == "script" || tag == "style" {
            rest = &rest[rest.find("</").unwrap()..];
        }
        found.insert((tag, names));
    }
    found
}

#[test]
fn text_from_outside_makes_no_element_and_no_attribute() {
    let honest = made_up::sweep(Made { seconds: 30.0, ..Made::default() }, &[2.0, 6.0, 9.0]);
    let page = page(&hostile::report());
    let ours = [
        "!doctype", "html", "head", "meta", "title", "style", "body", "main", "header", "section", "article",
    ];
    let ours = ours
        .into_iter()
        .chain(["p", "span", "h1", "h2", "h3", "div", "dl", "dt", "dd", "ul", "li", "b", "i"]);
    let ours =
        ours.chain(["em", "small", "code", "table", "colgroup", "col", "thead", "tbody", "tr", "th", "td"]);
    let ours = ours.chain([
        "figure",
        "figcaption",
        "svg",
        "desc",
        "g",
        "path",
        "rect",
        "button",
        "footer",
        "script",
    ]);
    let ours: BTreeSet<&str> = ours.collect();
    let attributes = "html lang charset name content http-equiv id class style role hidden title colspan aria-labelledby \
                      aria-label aria-pressed type data-t data-show data-choose data-phase tabindex viewBox \
                      preserveAspectRatio d x y width height";
    let attributes: BTreeSet<&str> = attributes.split(' ').collect();
    for (tag, names) in elements(&page).into_iter().chain(elements(&load::report::html::page(&honest))) {
        assert!(ours.contains(tag.trim_start_matches('/')), "<{tag}> is none of ours");
        for name in names {
            assert!(attributes.contains(name.as_str()), "<{tag} {name}> is none of ours");
        }
    }
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(!page.contains(['\u{1b}', '\u{7}', '\u{0}', '\u{202e}']), "control characters are replaced");
}

#[test]
fn a_page_loads_nothing() {
    let page = page(&made_up::single(Made { seconds: 20.0, ..Made::default() }));
    for what in
        ["src=", "href=", "url(", "@import", "<link", "<img", "<iframe", "fetch(", "XMLHttp", "import("]
    {
        assert!(!page.contains(what), "{what}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_policy_names_the_script_that_is_there() {
    let page = page(&made_up::single(Made { seconds: 20.0, ..Made::default() }));
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    assert!(page.contains(&format!("script-src 'sha256-{}'", escape::sha256_base64(script))));
}

#[test]
fn a_pages_size_is_bounded_whatever_the_run() {
    let mut report =
        made_up::single(Made { calls_per_s: 6.0, seconds: 100.0, output_max: 14, ..Made::default() });
    let shorter = page(&report).len();
    let long = Made { calls_per_s: 6.0, seconds: 3_000.0, output_max: 14, ..Made::default() };
    report.results = vec![made_up::results(long)];
    assert!(report.results[0].samples.len() > 15_000);
    let size = page(&report).len();
    assert!(
        size < SIZE_MAX && size < shorter * 3 / 2,
        "{size} bytes against {shorter} for a thirtieth of it"
    );

    let mut hostile = hostile::report();
    hostile.metrics = vec![hostile.metrics[0].clone(); 5_000];
    hostile.levels = vec![hostile.levels[0].clone(); 5_000];
    hostile.verdict = vec![hostile.verdict[0].clone(); 5_000];
    let size = page(&hostile).len();
    assert!(size < SIZE_MAX, "{size} bytes of texts from outside");
}

#[test]
fn a_void_run_says_so_first_and_a_sound_one_does_not() {
    let mut report = made_up::single(Made { seconds: 20.0, ..Made::default() });
    assert!(!page(&report).contains("role=\"alert\""));
    report.results[0].health.void = vec!["late by 12 ms".to_owned()];
    let page = page(&report);
    let (alert, first_figure) =
        (page.find("late by 12 ms").unwrap(), page.find("class=\"figures\"").unwrap());
    assert!(page.contains("role=\"alert\"") && alert < first_figure);
}

#[test]
fn an_opaque_server_has_no_stages_of_its_own_and_the_page_says_why() {
    let made = Made { seconds: 60.0, calls_per_s: 3.0, ..Made::default() };
    let body = |made| {
        let page = page(&made_up::single(made));
        page[page.find("<main>").unwrap()..].to_owned()
    };
    let opaque = body(Made { account: false, ..made });
    assert!(!opaque.contains("s-queue") && !opaque.contains("s-prefill"));
    assert!(opaque.contains("does not say what happens inside it") && opaque.contains("p-waiting"));
    let ours = body(made);
    assert!(ours.contains("s-queue") && ours.contains("s-prefill") && ours.contains("grew most"));
}

#[test]
fn runs_without_anything_to_draw_have_a_page() {
    let mut report = made_up::single(Made { seconds: 20.0, ..Made::default() });
    report.results[0].samples.clear();
    assert!(page(&report).contains("No call was made"));
    report.metrics.clear();
    report.verdict.clear();
    report.results[0].window.run_ns = 0;
    assert!(page(&report).contains("</html>"));
    report.results.clear();
    assert!(page(&report).contains("No run to report"));
}

#[test]
fn levels_whose_latency_is_infinite_are_drawn_at_the_top() {
    let mut report = made_up::sweep(Made { seconds: 30.0, ..Made::default() }, &[2.0, 4.0]);
    report.levels[1].ttft_p95 = Some(f64::INFINITY);
    let page = page(&report);
    let sweep = &page[page.find("id=\"sweep\"").unwrap()..page.find("id=\"metrics\"").unwrap()];
    assert!(sweep.contains(">∞</span>") && sweep.contains("top:0.00%"), "the axis ends in ∞");
    assert!(sweep.contains("ttft_p95&lt;2s"), "the objective's line is named");
}
