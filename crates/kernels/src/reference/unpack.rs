//! Packed panels taken apart.

use super::Reference;
use crate::format::{Codes, dequantize};
use crate::matmul::{BLOCK, Tile};
use crate::pack::{GROUP, PANEL, Panel, VECTOR};

impl Reference {
    /// Codes (after the table, before the offset), scales and minimums of a whole panel.
    pub(super) fn unpack(self, panel: &Panel<'_>, tile: &mut Tile) {
        let (units, subs) = (panel.cols / GROUP, panel.cols / panel.spec.scales.sub_len());
        let codes = tile.codes.at_least(units * PANEL * GROUP);
        for (unit, codes) in codes.chunks_exact_mut(PANEL * GROUP).enumerate() {
            for lane in 0..PANEL {
                for (input, &code) in panel.lane_codes(unit, lane).iter().enumerate() {
                    let at = input / 4 * VECTOR + lane * 4 + input % 4;
                    codes[at] = panel.spec.table.map_or(code, |table| table[usize::from(code)]);
                }
            }
        }
        let (scales, minimums) = (tile.scales.at_least(subs * PANEL), tile.minimums.at_least(subs * PANEL));
        for (at, (scale, minimum)) in scales.iter_mut().zip(minimums).enumerate() {
            (*scale, *minimum) = panel.lane_scale(at / PANEL, at % PANEL);
        }
    }

    /// The weights of the inputs from `start` on, at most [`BLOCK`] of them, `[inputs, 16]`.
    pub(super) fn unpack_weights(self, panel: &Panel<'_>, start: usize, weights: &mut [f32]) {
        if let Codes::Float(size) = panel.spec.codes {
            let bytes = &panel.codes[start * PANEL * size..][..weights.len() * size];
            return dequantize(panel.format, bytes, weights).expect("one float is one block");
        }
        debug_assert!(start.is_multiple_of(BLOCK));
        let sub_len = panel.spec.scales.sub_len();
        for (unit, weights) in weights.chunks_exact_mut(GROUP * PANEL).enumerate() {
            let unit = start / GROUP + unit;
            for lane in 0..PANEL {
                for (input, &code) in panel.lane_codes(unit, lane).iter().enumerate() {
                    let (scale, minimum) = panel.lane_scale((unit * GROUP + input) / sub_len, lane);
                    weights[input * PANEL + lane] = scale * f32::from(panel.spec.value(code)) - minimum;
                }
            }
        }
    }
}
