//! Free-form metadata of an entry (section 2.1), in as many shapes as a client may meet.

use serde_json::{Map, Value, json};

use super::dice::Dice;

/// One metadata object, or none.
pub(super) fn draw(dice: &mut Dice) -> Option<Map<String, Value>> {
    let value = match dice.below(16) {
        0..=3 => return None,
        4 => json!({}),
        5 => json!({ "source": dice.pick(&["web", "api", "mobile", "import"]) }),
        6 => {
            json!({ "from": "Discovery", "to": dice.pick(&["Évaluation", "Négociation", "Won", "Lost"]), "automatic": false })
        }
        7 => {
            json!({ "amount": cents(dice), "currency": dice.pick(&["EUR", "USD", "JPY", "CHF"]), "discount": 0.125 })
        }
        8 => json!({ "changes": [
            { "field": "title", "old": null, "new": "Ünïcödé — 日本語 🎉" },
            { "field": "position", "old": dice.below(9), "new": dice.below(9) },
        ] }),
        9 => {
            json!({ "ip": "192.0.2.17", "userAgent": "Mozilla/5.0 (X11; Linux x86_64) \"quoted\" \\ back/slash" })
        }
        10 => {
            json!({ "note": "first line\nsecond line\ttab \u{1} control", "empty": "", "none": null })
        }
        11 => {
            json!({ "durationSeconds": 0.0015, "ratio": -2.5e-7, "count": dice.below(1000), "big": 9_007_199_254_740_991_i64 })
        }
        12 => json!({ "nested": { "a": { "b": { "c": [1, [2, [3, null]], {}] } } }, "list": [] }),
        13 => {
            json!({ "status": dice.pick(&["todo", "done", "blocked"]), "previousStatus": null, "tags": ["α", "b b", "c,d"] })
        }
        14 => {
            json!({ "key with spaces": true, "ключ": "значение", "": "empty key", "dotted.key": 1 })
        }
        _ => json!({ "text": "lorem ipsum ".repeat(usize::try_from(dice.below(40)).unwrap_or(0)) }),
    };
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// An amount of money with cents.
fn cents(dice: &mut Dice) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a few million cents are exact")]
    let amount = dice.below(5_000_000) as f64;
    amount / 100.0
}
