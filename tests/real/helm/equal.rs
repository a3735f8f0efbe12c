//! The chart runs the exporter as `deploy/kubernetes/standalone.yaml` does.

use serde_json::Value;

use super::{NAME, example, object, pod};
use crate::support::files::{assert_has, documents, file, named};

#[test]
#[ignore = "needs helm"]
fn the_chart_runs_what_the_manifest_runs() {
    let manifest = documents(&file("deploy/kubernetes/standalone.yaml"));
    let chart = example("all");
    let [own, of_chart] = [&manifest, &chart].map(|objects| pod(objects));
    let [container, in_chart] = [own, of_chart].map(|pod| named(&pod["containers"], NAME));
    for same in
        "image startupProbe livenessProbe readinessProbe resources securityContext volumeMounts"
            .split(' ')
    {
        assert_has!(in_chart[same], container[same]);
    }
    for same in
        "securityContext automountServiceAccountToken terminationGracePeriodSeconds".split(' ')
    {
        assert_has!(of_chart[same], own[same]);
    }
    let peers = |objects: &[Value]| {
        let policy = object(objects, "NetworkPolicy", NAME)["spec"].clone();
        [
            &policy["ingress"][0]["from"],
            &policy["egress"][0]["to"],
            &policy["egress"][1]["to"],
        ]
        .map(Value::clone)
    };
    assert_eq!(peers(&chart), peers(&manifest));
}
