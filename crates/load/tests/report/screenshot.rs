//! The page in a real browser: `cargo xtask ci --with-browser`, or `cargo test -p load --test report -- --ignored screenshot`. The
//! browser is `FIRSTLIGHT_BROWSER` or one of [`BROWSERS`] in the path. Without one the tests fail and say so; they never pass by not
//! running.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use load::report::html::page;

use crate::made_up::{self, Made};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> PathBuf {
    if let Some(named) = std::env::var_os("FIRSTLIGHT_BROWSER") {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    found.into_iter().find(|candidate| candidate.is_file()).unwrap_or_else(|| {
        panic!("no browser was found: set FIRSTLIGHT_BROWSER, or install one of {BROWSERS:?}")
    })
}

/// Runs the browser on a page without a window; what it wrote to standard output comes back.
fn look(folder: &Path, page: &Path, arguments: &[String]) -> String {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"])
        .arg(profile)
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs a browser: FIRSTLIGHT_BROWSER, or chromium or google-chrome in the path"]
fn a_browser_draws_the_page_wide_and_narrow_light_and_dark() {
    let folder = tempfile::tempdir().unwrap();
    let report = made_up::sweep(Made { seconds: 60.0, ..Made::default() }, &[2.0, 4.0, 6.0]);
    let file = folder.path().join("report.html");
    std::fs::write(&file, page(&report)).unwrap();
    for (width, height, dark) in [(1280, 3000, false), (1280, 3000, true), (500, 3000, false)] {
        let picture = folder.path().join(format!("{width}-{dark}.png"));
        let arguments = [
            format!("--window-size={width},{height}"),
            format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)),
            format!("--screenshot={}", picture.display()),
        ];
        look(folder.path(), &file, &arguments);
        let picture = Picture::read(&std::fs::read(&picture).unwrap());
        assert_eq!((picture.width, picture.height), (width, height));
        let colours = picture.colours();
        assert!(
            colours > 200,
            "{colours} colours: the page is all but empty at {width} columns, dark {dark}"
        );
        let corner = picture.pixels[..3].iter().map(|part| u32::from(*part)).sum::<u32>();
        assert_eq!(corner < 200, dark, "the background follows the scheme: {corner}");
        // Every fifth of the page has something on it.
        for part in 0..5 {
            let from = picture.pixels.len() / 5 * part / 4 * 4;
            let row: BTreeSet<&[u8]> =
                picture.pixels[from..from + picture.pixels.len() / 5].chunks(4).collect();
            assert!(row.len() > 20, "part {part} of the page is empty at {width}, dark {dark}");
        }
    }
}

#[test]
#[ignore = "needs a browser: FIRSTLIGHT_BROWSER, or chromium or google-chrome in the path"]
fn the_pages_own_script_runs_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let honest = page(&made_up::single(Made { seconds: 20.0, ..Made::default() }));
    // A mistake in the page that let a script through would still meet the policy.
    let let_through =
        honest.replacen("<main>", "<main><script>document.documentElement.id='owned'</script>", 1);
    std::fs::write(&file, let_through).unwrap();
    let seen = look(folder.path(), &file, &["--dump-dom".to_owned()]);
    assert!(seen.contains("data-ready=\"1\""), "the policy lets the page's own script run");
    assert!(!seen.contains("id=\"owned\""), "and no other");
}

/// A picture with four bytes a pixel.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// Reads a PNG with 8 bits a channel, with or without alpha, not interlaced (PNG specification, third edition).
    fn read(png: &[u8]) -> Self {
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let (width, height) = (word(16), word(20));
        let channels = match (png[24], png[25], png[28]) {
            (8, 2, 0) => 3,
            (8, 6, 0) => 4,
            other => panic!("a PNG of another kind: {other:?}"),
        };
        let (mut at, mut packed) = (8, Vec::new());
        while at + 8 <= png.len() {
            let length = word(at);
            if &png[at + 4..at + 8] == b"IDAT" {
                packed.extend(&png[at + 8..at + 8 + length]);
            }
            at += 12 + length;
        }
        let mut raw = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(packed.as_slice()), &mut raw).unwrap();
        let stride = width * channels;
        assert_eq!(raw.len(), (stride + 1) * height);
        let mut above = vec![0u8; stride];
        let mut pixels = Vec::with_capacity(width * height * 4);
        for line in raw.chunks(stride + 1) {
            let mut row = line[1..].to_vec();
            for at in 0..stride {
                let left = if at >= channels { row[at - channels] } else { 0 };
                let corner = if at >= channels { above[at - channels] } else { 0 };
                row[at] = row[at].wrapping_add(predicted(line[0], left, above[at], corner));
            }
            for pixel in row.chunks(channels) {
                pixels.extend([pixel[0], pixel[1], pixel[2], 255]);
            }
            above = row;
        }
        Picture { width, height, pixels }
    }

    fn colours(&self) -> usize {
        self.pixels.chunks(4).collect::<BTreeSet<_>>().len()
    }
}

/// What a line's filter adds to a byte.
fn predicted(filter: u8, left: u8, up: u8, corner: u8) -> u8 {
    match filter {
        0 => 0,
        1 => left,
        2 => up,
        3 => ((u16::from(left) + u16::from(up)) / 2) as u8,
        4 => {
            let estimate = i16::from(left) + i16::from(up) - i16::from(corner);
            let distance = |byte: u8| (estimate - i16::from(byte)).abs();
            [left, up, corner].into_iter().min_by_key(|byte| distance(*byte)).unwrap()
        }
        other => panic!("there is no filter {other}"),
    }
}
