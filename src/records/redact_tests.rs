use super::*;

fn redacted(paths: &str, json: &str) -> String {
    let paths: Vec<String> = paths.split(' ').map(str::to_owned).collect();
    let redaction = Redaction::new(true, &paths).expect("there are paths");
    redaction.redact(json)
}

#[test]
fn what_is_on_a_path_is_redacted() {
    for line in [
        // At any depth, and in every element of an array.
        r#"{"metadata":[{"contact":{"email":"a"}},[{"contact":{"email":null}}],7],"email":2} => {"metadata":[{"contact":{"email":"[REDACTED]"}},[{"contact":{"email":"[REDACTED]"}}],7],"email":2}"#,
        r#"{"page":[{"metadata":{"contact":{"email":1}}}]} => {"page":[{"metadata":{"contact":{"email":"[REDACTED]"}}}]}"#,
        // Keys with dots and escapes.
        r#"{"metadata":{"contact.email":1,"contact":{"\u0065mail":{"x":1}}}} => {"metadata":{"contact.email":"[REDACTED]","contact":{"\u0065mail":"[REDACTED]"}}}"#,
        // A key that continues the path.
        r#"{"metadata":{"contact.email.work":1}} => {"metadata":{"contact.email.work":"[REDACTED]"}}"#,
        r#"{"metadata.contact":{"\u0065mail.work":1}} => {"metadata.contact":{"\u0065mail.work":"[REDACTED]"}}"#,
        r#"{"metadata.contact.email.work":1} => {"metadata.contact.email.work":"[REDACTED]"}"#,
        // A string before the end of the path may contain the value, as JSON or as text.
        r#"{"metadata":{"contact":"{\"email\":\"z@x.test\"}"}} => {"metadata":{"contact":"[REDACTED]"}}"#,
        r#"{"metadata":{"contact":["{\"email\":1}",[["z@x.test"]],{"email":1,"a":"b"}]}} => {"metadata":{"contact":["[REDACTED]",[["[REDACTED]"]],{"email":"[REDACTED]","a":"b"}]}}"#,
        r#"{"metadata":"z@x.test","a":"b"} => {"metadata":"[REDACTED]","a":"b"}"#,
        r#"{"metadata.contact":"\ud800"} => {"metadata.contact":"[REDACTED]"}"#,
        r#""z@x.test" => "[REDACTED]""#,
        r#"["z@x.test",{"a":"b","metadata":["c"]}] => ["[REDACTED]",{"a":"b","metadata":["[REDACTED]"]}]"#,
        // Of two equal keys, each is redacted by itself.
        r#"{"metadata":{"contact":1,"contact":"z@x.test"}} => {"metadata":{"contact":1,"contact":"[REDACTED]"}}"#,
        // Only a string can contain the value.
        r#"{"metadata":{"contact":[null,7,1.5,true,{},[]]}} => {"metadata":{"contact":[null,7,1.5,true,{},[]]}}"#,
        // Other keys.
        r#"{"metadata":{"contact":{"emails":"a","e":"b","":"c"},"contact.e":"d"}} => {"metadata":{"contact":{"emails":"a","e":"b","":"c"},"contact.e":"d"}}"#,
        r#"{"metadata":{"contacts":"a","contact.":"b"},"metadata.c":"d"} => {"metadata":{"contacts":"a","contact.":"b"},"metadata.c":"d"}"#,
    ] {
        let (json, expected) = line.split_once(" => ").expect(line);
        for path in ["contact.email", "metadata.contact.email"] {
            assert_eq!(redacted(path, json), expected, "{json}");
        }
    }
    let json = r#"{"metadata":{"contact.email":1,"a":{"b.c":{"d":2}},"z":{"b.c":{"d":2}}}}"#;
    let expected = r#"{"metadata":{"contact.email":"[REDACTED]","a":"[REDACTED]","z":{"b.c":{"d":"[REDACTED]"}}}}"#;
    let paths = "contact.email a.b.c.d a z.b.c.d";
    assert_eq!(redacted(paths, json), expected, "paths may overlap");
    let all = redacted("metadata", r#"{"email":1,"metadata":{"a":2}}"#);
    assert_eq!(all, r#"{"email":1,"metadata":"[REDACTED]"}"#);
}
