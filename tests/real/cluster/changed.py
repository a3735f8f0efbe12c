"""changed.py STATEMENTS < MANIFESTS: prints the StatefulSet of these manifests after statements that change it."""
import json
import sys

import yaml

INDEX = "ORGDATA_KUBERNETES_POD_INDEX"
documents = yaml.safe_load_all(sys.stdin)
document = next(each for each in documents if each["kind"] == "StatefulSet")
spec = document["spec"]
pod = spec["template"]["spec"]
# It would have to be there for a pod.
pod.pop("serviceAccountName", None)
exporter = next(each for each in pod.get("initContainers", []) + pod["containers"] if each["name"] == "orgdata-exporter")


def forget_index():
    exporter["env"] = [each for each in exporter["env"] if each["name"] != INDEX]


def rename():
    exporter["name"] = "other"


def make(kind, index=None):
    """Makes an object of another kind of it; a pod with this index has the label that the StatefulSet controller sets."""
    labels = dict(spec["template"]["metadata"]["labels"])
    if index is not None:
        labels["apps.kubernetes.io/pod-index"] = str(index)
    if "volumeClaimTemplates" in spec:
        pod["volumes"].append({"name": "state", "emptyDir": {}})
    document["kind"] = kind
    if kind == "Pod":
        document.update(apiVersion="v1", metadata={"name": "other", "labels": labels}, spec=pod)
    else:
        document["spec"] = {key: spec[key] for key in ("selector", "template")}


exec(sys.argv[1])
json.dump(document, sys.stdout)
