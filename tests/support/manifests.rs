//! Kubernetes objects as plain values.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use serde_json::Value;

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The only object of a kind and a name.
pub(crate) fn object<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<&Value> = documents
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .collect();
    let [object] = found[..] else {
        panic!("{} of {kind} {name}", found.len())
    };
    object
}

/// The entry of a list that has this name.
pub(crate) fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let list = list
        .as_array()
        .unwrap_or_else(|| panic!("no list with {name}: {list}"));
    list.iter()
        .find(|entry| entry["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

/// Bytes, as Kubernetes (`256Mi`) and the exporter (`256MiB`) write them.
pub(crate) fn bytes(quantity: &Value) -> u64 {
    let text = quantity
        .as_str()
        .unwrap_or_else(|| panic!("no size: {quantity}"))
        .trim_end_matches('B');
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = ["", "Ki", "Mi", "Gi"]
        .iter()
        .position(|unit| *unit == &text[digits.len()..])
        .expect("a known unit");
    digits.parse::<u64>().expect("a number") << (10 * shift)
}
