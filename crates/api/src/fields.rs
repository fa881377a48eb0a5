//! Typed access to the keys of a JSON object. Each key is taken out as it is read, so that what remains at the end is
//! what nobody read.
//!
//! **Invariant:** `null` means absent, a value of the wrong type is refused by name, and nothing is coerced: `"0.7"` is
//! not a number, `1` is not a boolean, and `2.0` is not an integer.

use protocol::Refusal;
use serde_json::{Map, Value};

use crate::json::kind;

/// An object being read, and where in the request it stands.
pub struct Fields {
    map: Map<String, Value>,
    /// Such as `messages[3].`, or nothing for the request itself.
    prefix: String,
}

impl Fields {
    /// The request itself.
    pub fn top(map: Map<String, Value>) -> Self {
        Fields { map, prefix: String::new() }
    }

    /// An object inside the request; `path` is its full name.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn nested(path: &str, value: Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Fields { map, prefix: format!("{path}.") }),
            other => Err(wrong(path, "an object", &other)),
        }
    }

    /// A key's full name.
    pub fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Takes the value of `key`, unless it is absent or null.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.shift_remove(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(wrong(self.path(key), expected, &value)),
            },
        }
    }

    pub fn boolean(&mut self, key: &str) -> Result<Option<bool>, Refusal> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn number(&mut self, key: &str) -> Result<Option<f32>, Refusal> {
        self.typed(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    /// A whole number of at least 0. What exceeds the machine's range is taken as its end: a limit so high is none.
    pub fn count(&mut self, key: &str) -> Result<Option<usize>, Refusal> {
        self.typed(key, "an integer of at least 0, written without fraction or exponent", count)
    }

    /// A whole number of either sign.
    pub fn integer(&mut self, key: &str) -> Result<Option<i64>, Refusal> {
        self.typed(key, "an integer, written without fraction or exponent", |value| {
            value.as_i64().or_else(|| count(value).map(|_| i64::MAX))
        })
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(self.path(key), "a string", &other)),
        }
    }

    pub fn array(&mut self, key: &str) -> Result<Option<Vec<Value>>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong(self.path(key), "an array", &other)),
        }
    }

    pub fn object(&mut self, key: &str) -> Result<Option<Map<String, Value>>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong(self.path(key), "an object", &other)),
        }
    }

    /// What nobody read, nulls left out.
    pub fn rest(self) -> Map<String, Value> {
        self.map.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}

/// A value of the wrong type.
pub fn wrong(path: impl Into<String>, expected: &str, value: &Value) -> Refusal {
    Refusal::invalid(path, format!("must be {expected}, but it is {}", kind(value)))
}

fn count(value: &Value) -> Option<usize> {
    // Beyond 64 bits the parser only keeps a float; no float below that is an integer as written.
    const BEYOND_U64: f64 = 18_446_744_073_709_551_616.0;
    match value.as_u64() {
        Some(number) => Some(usize::try_from(number).unwrap_or(usize::MAX)),
        None => value.as_f64().filter(|number| *number >= BEYOND_U64).map(|_| usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::nested("outer", value).unwrap()
    }

    #[test]
    fn null_is_absent_and_a_wrong_type_is_named() {
        assert_eq!(fields(json!({"a": null})).number("a").unwrap(), None);
        let refusal = fields(json!({"a": "0.7"})).number("a").unwrap_err();
        assert_eq!(refusal.to_string(), "outer.a must be a number, but it is a string");
    }

    #[test]
    fn an_integer_has_no_fraction_and_no_exponent_and_saturates() {
        assert_eq!(fields(json!({"a": 5})).count("a").unwrap(), Some(5));
        let huge: Value = serde_json::from_str("{\"a\": 18446744073709551616}").unwrap();
        assert_eq!(fields(huge).count("a").unwrap(), Some(usize::MAX));
        for bad in ["-1", "1.5", "1e1", "2.0", "\"5\"", "true", "[]"] {
            let value: Value = serde_json::from_str(&format!("{{\"a\": {bad}}}")).unwrap();
            assert!(fields(value).count("a").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_nobody_read_remains_in_order() {
        let mut fields = fields(json!({"x": 1, "a": 2, "y": 3, "z": null}));
        fields.count("a").unwrap();
        assert_eq!(fields.rest().keys().collect::<Vec<_>>(), ["x", "y"]);
    }
}
