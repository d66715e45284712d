//! Helm chart values inside the object that installs the chart: a K3s `HelmChart`, a Flux `HelmRelease`, an
//! Argo CD `Application`, or a ConfigMap.

use serde_json::{Map, Value};

use super::SourceFile;
use super::source::{SourceError, documents, text_at};

/// Returns the Helm values in a document. A document that is not a Kubernetes object consists of the values
/// themselves.
pub(super) fn values(document: Value) -> Result<Vec<Value>, SourceError> {
    let inside = |text: Option<&str>| match text {
        Some(text) => documents(SourceFile { name: "the text with the Helm values", text }),
        None => Ok(Vec::new()),
    };
    let map = |path: &[&str]| {
        let found = path.iter().try_fold(&document, |value, key| value.get(key));
        found.filter(|value| value.is_object()).cloned()
    };
    let mut found = Vec::new();
    match text_at(&document, &["kind"]) {
        Some("HelmChart" | "HelmChartConfig") => {
            found.extend(inside(text_at(&document, &["spec", "valuesContent"]))?);
            if let Some(Value::Object(set)) = map(&["spec", "set"]) {
                found.extend(set.into_iter().map(|(key, value)| nested(&key, value)));
            }
        }
        Some("HelmRelease") => found.extend(map(&["spec", "values"])),
        Some("Application") => {
            let spec = document.get("spec");
            let several = spec.and_then(|spec| spec.get("sources")).and_then(Value::as_array);
            let one = spec.and_then(|spec| spec.get("source"));
            for source in one.into_iter().chain(several.into_iter().flatten()) {
                found.extend(inside(text_at(source, &["helm", "values"]))?);
                let helm = source.get("helm");
                found.extend(helm.and_then(|helm| helm.get("valuesObject")).cloned());
                let set = helm.and_then(|helm| helm.get("parameters")).and_then(Value::as_array);
                let pairs = set
                    .into_iter()
                    .flatten()
                    .filter_map(|one| Some((text_at(one, &["name"])?, one.get("value")?.clone())));
                found.extend(pairs.map(|(name, value)| nested(name, value)));
            }
        }
        Some("ConfigMap" | "Secret") => {
            for key in ["data", "stringData"] {
                let Some(Value::Object(data)) = map(&[key]) else { continue };
                for text in data.values().filter_map(Value::as_str) {
                    // Text that is not YAML cannot contain Helm values, so it is skipped.
                    found.extend(inside(Some(text)).unwrap_or_default());
                }
            }
        }
        Some(_) if document.get("apiVersion").is_some() => {}
        _ => found.push(document),
    }
    Ok(found)
}

/// Wraps a value in nested maps along the path `a.b.c`, like Helm's `--set`.
fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, key| {
        let mut map = Map::new();
        map.insert(key.to_owned(), inner);
        Value::Object(map)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> Vec<Value> {
        let all = documents(SourceFile { name: "f", text })
            .unwrap()
            .into_iter()
            .flat_map(|one| values(one).unwrap());
        all.filter_map(|value| value.pointer("/kproximate/config/kpNodeCores").cloned()).collect()
    }

    #[test]
    fn values_are_found_in_what_installs_the_chart() {
        for text in [
            "kproximate: {config: {kpNodeCores: 2}}",
            "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nspec:\n  valuesContent: |-\n    kproximate:\n      config:\n        kpNodeCores: 2",
            "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nspec: {set: {kproximate.config.kpNodeCores: 2}}",
            "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {values: {kproximate: {config: {kpNodeCores: 2}}}}",
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {helm: {valuesObject: {kproximate: {config: {kpNodeCores: 2}}}}}}",
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {sources: [{helm: {values: 'kproximate: {config: {kpNodeCores: 2}}'}}]}",
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {helm: {parameters: [{name: kproximate.config.kpNodeCores, value: 2}]}}}",
            "apiVersion: v1\nkind: ConfigMap\ndata: {values.yaml: 'kproximate: {config: {kpNodeCores: 2}}'}",
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, spec: {values: {kproximate: {config: {kpNodeCores: 2}}}}}]",
        ] {
            assert_eq!(cores(text), [2], "{text}");
        }
        assert_eq!(cores("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}"), Vec::<Value>::new());
    }
}
