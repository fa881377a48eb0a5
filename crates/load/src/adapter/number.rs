//! Numbers as servers write them: a count is a whole number, a duration is finite and not negative, and whatever else
//! stands there is taken for absent rather than for a reason to refuse the frame.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A count, or None for null, a fraction, a negative number or something else.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_u64().and_then(|number| u32::try_from(number).ok()))
}

/// A number, or None for null or something else.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_f64())
}

/// Milliseconds to nanoseconds; None unless finite and not negative.
pub(super) fn ns_of_ms(ms: f64) -> Option<u64> {
    ns_of_s(ms / 1e3)
}

/// Seconds to nanoseconds; None unless finite and not negative.
pub(super) fn ns_of_s(seconds: f64) -> Option<u64> {
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_that_cannot_be_is_absent() {
        assert_eq!(ns_of_ms(1.5), Some(1_500_000));
        assert_eq!(ns_of_s(0.0), Some(0));
        for wrong in [-0.001, f64::NAN, f64::INFINITY] {
            assert_eq!(ns_of_s(wrong), None);
        }
    }
}
