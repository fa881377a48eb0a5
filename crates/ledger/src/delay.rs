//! Test only: a delay in one stage, to prove that the ledger sees it there and nowhere else.
//!
//! Without the `delay` feature [`inject`] is empty. With it, `FIRSTLIGHT_DELAY=prefill=20000,write=5000` (microseconds)
//! makes the named stages slower, each time they are entered.

use crate::Stage;

/// Sleeps as long as the environment asks for in `stage`; called once inside each stage.
#[cfg(not(feature = "delay"))]
#[inline(always)]
pub fn inject(_stage: Stage) {}

/// Sleeps as long as the environment asks for in `stage`; called once inside each stage.
#[cfg(feature = "delay")]
pub fn inject(stage: Stage) {
    static DELAYS: std::sync::OnceLock<Vec<(Stage, std::time::Duration)>> = std::sync::OnceLock::new();
    let delays = DELAYS.get_or_init(|| {
        let text = std::env::var("FIRSTLIGHT_DELAY").unwrap_or_default();
        text.split(',').filter(|entry| !entry.is_empty()).map(parse).collect()
    });
    for (_, duration) in delays.iter().filter(|(delayed, _)| *delayed == stage) {
        std::thread::sleep(*duration);
    }
}

#[cfg(feature = "delay")]
fn parse(entry: &str) -> (Stage, std::time::Duration) {
    let (stage, micros) = entry.split_once('=').expect("FIRSTLIGHT_DELAY holds stage=microseconds entries");
    let micros = micros.parse().expect("FIRSTLIGHT_DELAY's delays are whole microseconds");
    (stage.parse().expect("FIRSTLIGHT_DELAY names a stage"), std::time::Duration::from_micros(micros))
}
