//! Quantized formats as types, so that a kernel is compiled once for each and its planes and scales are constants in it.
//!
//! **Invariant:** floats have no type here: they have no codes.

use super::{Format, Spec};

/// A quantized format.
pub(crate) trait Quantized {
    const SPEC: &'static Spec;
}

macro_rules! quantized {
    ($($format:ident)*) => {
        $(
            pub(crate) struct $format;
            impl Quantized for $format {
                const SPEC: &'static Spec = Format::$format.spec();
            }
        )*
    };
}

quantized!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K IQ4NL IQ4XS MXFP4);

/// Compiles a call for every quantized format and makes the one at hand: `by_format!(format, F => work::<F>(..))`.
macro_rules! by_format {
    ($at_hand:expr, $type:ident => $call:expr) => {{
        macro_rules! as_type {
            ($format:ident) => {{
                type $type = $crate::format::typed::$format;
                $call
            }};
        }
        use $crate::format::Format;
        match $at_hand {
            Format::F32 | Format::F16 | Format::BF16 => unreachable!("floats have no codes"),
            Format::Q4_0 => as_type!(Q4_0),
            Format::Q4_1 => as_type!(Q4_1),
            Format::Q5_0 => as_type!(Q5_0),
            Format::Q5_1 => as_type!(Q5_1),
            Format::Q8_0 => as_type!(Q8_0),
            Format::Q2K => as_type!(Q2K),
            Format::Q3K => as_type!(Q3K),
            Format::Q4K => as_type!(Q4K),
            Format::Q5K => as_type!(Q5K),
            Format::Q6K => as_type!(Q6K),
            Format::IQ4NL => as_type!(IQ4NL),
            Format::IQ4XS => as_type!(IQ4XS),
            Format::MXFP4 => as_type!(MXFP4),
        }
    }};
}
pub(crate) use by_format;
