//! The OpenAPI description against what is served.

use std::collections::HashSet;

use orgdata_exporter::simulator::Fault;
use reqwest::StatusCode;
use serde_json::Value;

use super::support::{audit, client, get, text, with_history};

/// What of a JSON value does not follow a schema of the OpenAPI description.
fn violations(api: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = api.pointer(reference.trim_start_matches('#')).unwrap();
        return violations(api, schema, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let each: Vec<_> = choices
            .iter()
            .map(|choice| violations(api, choice, value, at))
            .collect();
        let fits = each.iter().filter(|found| found.is_empty()).count();
        return if fits == 1 { Vec::new() } else { each.concat() };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = types.is_empty()
        || types.contains(&kind)
        || (types.contains(&"integer") && (value.is_u64() || value.is_i64()));
    if !fits {
        return vec![format!("{at}: {kind} is none of {types:?}")];
    }
    let mut found = Vec::new();
    if schema["format"] == "date-time"
        && value
            .as_str()
            .is_some_and(|text| text.parse::<jiff::Timestamp>().is_err())
    {
        found.push(format!("{at}: {value} is no time"));
    }
    for item in value.as_array().into_iter().flatten() {
        found.extend(violations(api, &schema["items"], item, &format!("{at}[]")));
    }
    if let Some(object) = value.as_object() {
        for required in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(required) {
                found.push(format!("{at}: {required} is missing"));
            }
        }
        for (name, value) in object {
            match schema["properties"].get(name) {
                Some(schema) => {
                    found.extend(violations(api, schema, value, &format!("{at}.{name}")))
                }
                None if schema["additionalProperties"] == false => {
                    found.push(format!("{at}: {name} is not described"))
                }
                None => {}
            }
        }
    }
    found
}

#[tokio::test]
async fn what_is_served_is_what_the_openapi_description_says() {
    let sim = with_history(3_000, |config| {
        config.tickets = 1_000;
        config.keys.push("poor=".parse().unwrap());
    })
    .await;
    let (_, api) = get(&sim, "/openapi.json").await;
    assert_eq!(api["openapi"], "3.1.0");
    let check = |path: &str, status: u16, body: &Value| {
        let response = &api["paths"][path]["get"]["responses"][status.to_string()];
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} {status} is not described");
        assert_eq!(violations(&api, schema, body, "body"), Vec::<String>::new());
    };
    let mut nulls: HashSet<String> = HashSet::new();
    let mut query = "limit=1000".to_owned();
    for _ in 0..3 {
        let page = audit(&sim, &query).await;
        check("/v1/audit-logs", 200, &page);
        for entry in page["items"].as_array().unwrap() {
            nulls.extend(
                entry
                    .as_object()
                    .unwrap()
                    .iter()
                    .filter(|(_, value)| value.is_null())
                    .map(|(name, _)| name.clone()),
            );
        }
        query = format!("limit=1000&before={}", text(&page, "endCursor"));
    }
    // Every field that may be null is null sometimes, and no other ever.
    let entry = &api["components"]["schemas"]["AuditLogEntry"];
    assert_eq!(
        entry["required"].as_array().unwrap().len(),
        entry["properties"].as_object().unwrap().len()
    );
    let described: HashSet<String> = entry["properties"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, schema)| violations(&api, schema, &Value::Null, "").is_empty())
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(nulls, described);

    let (_, tickets) = get(&sim, "/v1/tickets?limit=1000").await;
    check("/v1/tickets", 200, &tickets);
    for path in ["/v1/audit-logs", "/v1/tickets"] {
        let (status, body) = get(&sim, &format!("{path}?limit=0")).await;
        check(path, status.as_u16(), &body);
        for key in ["wrong", "poor"] {
            let response = client()
                .get(format!("{}{path}", sim.base_url()))
                .header("x-api-key", key)
                .send()
                .await
                .unwrap();
            let status = response.status().as_u16();
            check(
                path,
                status,
                &serde_json::from_slice(&response.bytes().await.unwrap()).unwrap(),
            );
        }
        sim.fault(Fault::status(StatusCode::INTERNAL_SERVER_ERROR).once());
        check(path, 500, &get(&sim, path).await.1);
    }
}
