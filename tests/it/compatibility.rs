//! `docs/compatibility.md` names the versions that `.ci/setup` installs and `Cargo.toml` promises.

use crate::support::files::{file, text, yaml};

/// Returns the part of a file between these.
fn between(name: &str, start: &str, end: char) -> String {
    let text = file(name);
    let (_, rest) = text.split_once(start).expect(start);
    rest.split(end).next().unwrap().to_owned()
}

/// Returns the versions of a variable of `.ci/setup`, which can be a list.
fn variable(name: &str) -> Vec<String> {
    let value = between(".ci/setup", &format!("\n{name}="), '\n');
    let values = value.trim_matches(['(', ')']).split(' ');
    // The Python packages for Grafana have an epoch.
    let versions = values.map(|value| value.trim_matches('\'').rsplit('!').next().unwrap());
    let versions = versions.map(|version| version.trim_start_matches('v').to_owned());
    versions.collect()
}

/// Returns the generation of a program of Debian's that `.ci/setup` insists on.
fn expected(program: &str) -> String {
    let pattern = between(".ci/setup", &format!("expect {program} 'version "), '\'');
    pattern.replace('\\', "").trim_end_matches('.').to_owned()
}

/// Returns the versions that belong in a row of the table.
fn versions(program: &str) -> Vec<String> {
    match program.split(['(', ',']).next().unwrap() {
        "Prometheus" => vec![expected("prometheus"), expected("prometheus3")],
        "promtool" => vec![expected("promtool"), expected("promtool3")],
        "Alertmanager" => vec![expected("alertmanager")],
        "OpenTelemetry Collector" => {
            let manifest = match program.split_once(", ") {
                Some((_, "Prometheus receiver")) => "collector-scrape",
                Some(_) => "collector-old",
                None => "collector",
            };
            vec![text(
                &yaml(&format!(".ci/{manifest}.yaml"))["dist"]["version"],
            )]
        }
        "rotel" => variable("rotel_version"),
        "VictoriaLogs" => variable("victoria_logs_version"),
        "Grafana" => variable("grafana_versions"),
        "Kubernetes" => ["kubernetes_version", "kubernetes_schema_version"]
            .map(variable)
            .concat(),
        "Prometheus Operator" => variable("prometheus_operator_version"),
        "Helm" => variable("helm_version"),
        "cert-manager" => variable("cert_manager_version"),
        "Rust" => vec![between("Cargo.toml", "\nrust-version = \"", '"')],
        // Debian's packages and libraries, of any version.
        _ => Vec::new(),
    }
}

#[test]
fn the_page_names_the_versions_that_are_tested() {
    let page = file("docs/compatibility.md");
    let (table, requirements) = page.split_once("\n## Requirements").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let words = cells[1].split(|c: char| !c.is_alphanumeric() && c != '.');
        let named = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let named: Vec<&str> = named.map(|word| word.trim_end_matches(".x")).collect();
        let tested = versions(cells[0]);
        // The page can leave out the last numbers.
        let is_it = |(named, tested): (&&str, &String)| {
            format!("{tested}.").starts_with(&format!("{named}."))
        };
        let is_right = named.len() == tested.len() && named.iter().zip(&tested).all(is_it);
        assert!(is_right, "{}: {named:?}, tested: {tested:?}", cells[0]);
    }
    let rust = format!("| building | Rust {} ", versions("Rust")[0]);
    assert!(requirements.contains(&rust), "no {rust}");
}
