//! The exporter beside an application: what is refused, and what is left alone.

use serde_json::{Value, json};

use super::overlay::{Overlay, application};
use super::{mounted, probes, settings_of, spec, user};
use crate::support::manifests::{bytes, documents, named, object};

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_sidecar_is_refused_by_anything_but_one_statefulset_of_one() {
    for kind in ["native-sidecar", "plain-sidecar"] {
        let refusal =
            |change: &dyn Fn(String) -> String| Overlay::beside(change, &[kind]).refusal("a guard");
        let replicas = "testing value /spec/replicas failed";
        assert!(refusal(&|text| text.replace("replicas: 1", "replicas: 3")).contains(replicas));
        assert!(refusal(&|text| text.replace("replicas: 1", "replicas: 0")).contains(replicas));
        assert!(refusal(&|text| text.replace("  replicas: 1\n", "")).contains(replicas));
        let deployment = refusal(&|text| {
            text.replace("kind: StatefulSet", "kind: Deployment")
                .replace("  serviceName: shop\n", "")
        });
        assert!(
            deployment.contains("nothing selected by StatefulSet"),
            "{deployment}"
        );
        let two = refusal(&|text| {
            let set = text
                .split("---\n")
                .find(|document| document.contains("kind: StatefulSet"))
                .expect("one")
                .to_owned();
            format!(
                "{text}---\n{}",
                set.replace("name: shop\n", "name: second\n")
            )
        });
        assert!(
            two.contains("multiple matches for selector StatefulSet"),
            "{two}"
        );
        let scaled = refusal(&|text| {
            format!(
                "{text}---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: shop}}\nspec: {{maxReplicas: 3}}\n"
            )
        });
        assert!(
            scaled.contains("testing value /spec/maxReplicas failed"),
            "{scaled}"
        );

        let replicas_of_overlay = |count: u32| {
            let overlay = Overlay::beside(|text| text, &[kind])
                .set("replicas", json!([{ "name": "shop", "count": count }]));
            overlay.with("transformers", &["components/one-replica"])
        };
        assert!(
            replicas_of_overlay(3)
                .refusal("after the overlay's own word")
                .contains(replicas)
        );
        replicas_of_overlay(1).build().expect("one is fine");
    }
    for components in [
        ["native-sidecar", "plain-sidecar"],
        ["collector", "native-sidecar"],
        ["sidecar-claim", "native-sidecar"],
    ] {
        let refusal =
            Overlay::beside(|text| text, &components).refusal("two kinds, or the wrong order");
        assert!(refusal.contains("orgdata-exporter"), "{refusal}");
    }
    let refusal = Overlay::base(&["native-sidecar"]).refusal("an exporter beside an exporter");
    assert!(
        refusal.contains("exists; can not use behavior"),
        "{refusal}"
    );
    let without = |text: String| text.replace("        fsGroup: 20000\n", "");
    let refusal = Overlay::beside(without, &["native-sidecar", "sidecar-claim"])
        .refusal("a claim that nobody could write to");
    assert!(refusal.contains("fsGroup"), "{refusal}");
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn the_application_stays_as_it_was() {
    let before = documents(&application());
    for kind in ["native-sidecar", "plain-sidecar"] {
        for claim in [&[][..], &["sidecar-claim"]] {
            let mut after = Overlay::beside(|text| text, &[&[kind], claim].concat()).objects();
            let set = after
                .iter_mut()
                .find(|object| object["kind"] == "StatefulSet")
                .expect("the application");
            let pod = set["spec"]["template"]["spec"]
                .as_object_mut()
                .expect("a pod");
            let first = pod["containers"][0]["name"].clone();
            for list in ["initContainers", "containers", "volumes"] {
                let is_ours = |entry: &Value| {
                    entry["name"]
                        .as_str()
                        .is_some_and(|name| name.starts_with("orgdata-exporter"))
                };
                pod[list]
                    .as_array_mut()
                    .expect("a list")
                    .retain(|entry| !is_ours(entry));
            }
            for object in &before {
                let name = object["metadata"]["name"].as_str().expect("a name");
                assert_eq!(
                    self::object(&after, object["kind"].as_str().expect("a kind"), name),
                    object,
                    "{kind} {claim:?}"
                );
            }
            assert_eq!(first, "shop", "kubectl logs and exec go to the application");
        }
    }
}

#[test]
#[ignore = "needs kustomize, and the schemas and servers that .ci/setup installs beside it"]
fn a_sidecar_keeps_out_of_the_way() {
    for (kind, list) in [
        ("native-sidecar", "initContainers"),
        ("plain-sidecar", "containers"),
    ] {
        let objects = Overlay::beside(|text| text, &[kind]).objects();
        let pod = spec(&objects, "shop");
        let container = named(&pod[list], "orgdata-exporter");
        assert_eq!(
            container["restartPolicy"],
            if list == "containers" {
                Value::Null
            } else {
                json!("Always")
            }
        );
        assert!(
            container.get("readinessProbe").is_none() && container.get("startupProbe").is_none(),
            "{kind}"
        );
        assert!(
            container["resources"]["limits"]
                .get("ephemeral-storage")
                .is_none(),
            "the limit would be the pod's"
        );
        assert!(
            container["ports"][0].get("name").is_none(),
            "the application may have the same"
        );
        assert_eq!(pod["securityContext"]["fsGroup"], 20000);

        let state = named(&pod["volumes"], "orgdata-exporter-state");
        let settings = settings_of(&objects, container);
        // The file, its write-ahead log, and two copies that were set aside.
        assert!(
            bytes(&state["emptyDir"]["sizeLimit"]) > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"]),
            "{kind}"
        );
        assert_eq!(settings["ORGDATA_AUDIT_START"], "1h");
        let key = &named(&pod["volumes"], "orgdata-exporter-api-key")["secret"];
        assert_eq!(
            (&key["defaultMode"], &key["optional"]),
            (&json!(0o444), &json!(true))
        );
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        assert!(
            mounts
                .iter()
                .any(|mount| mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"),
            "the application's token"
        );
        user(&container["securityContext"]);
        mounted(container, settings);
        probes(container);

        let objects = Overlay::beside(|text| text, &[kind, "sidecar-claim"]).objects();
        let pod = spec(&objects, "shop");
        let settings = settings_of(&objects, named(&pod[list], "orgdata-exporter"));
        let state = named(&pod["volumes"], "orgdata-exporter-state");
        assert_eq!(
            *state,
            json!({ "name": "orgdata-exporter-state", "persistentVolumeClaim": { "claimName": "orgdata-exporter-state" } })
        );
        let claim = object(&objects, "PersistentVolumeClaim", "orgdata-exporter-state");
        assert!(
            bytes(&claim["spec"]["resources"]["requests"]["storage"])
                > 3 * bytes(&settings["ORGDATA_STATE_MAX_SIZE"])
        );
        assert_eq!(settings["ORGDATA_AUDIT_START"], "now");
    }
}
