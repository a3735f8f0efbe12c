//! A small language for dashboards: panels flow into rows of 24 columns, and `@` in a query stands for the selection of job and instance.

use serde_json::{Map, Value, json};

/// The oldest Grafana that is supported (10.0) writes this version; later ones bring it up to theirs when they open it.
const SCHEMA_VERSION: u32 = 38;

/// Shared by the dashboards: the links between them go by it.
pub(crate) const TAG: &str = "orgdata-exporter";

/// What every selector has.
pub(crate) const SELECTION: &str = r#"job=~"$job",instance=~"$instance""#;

/// 0 as long as there is an exporter, whatever it has counted.
pub(crate) const ZERO: &str = "0 * max(orgdata_audit_paused{@})";

/// 0 as long as there is a ticket snapshot: without one there is no figure, not even 0.
pub(crate) const ZERO_TICKETS: &str = "0 * max(orgdata_tickets_snapshot_consistent{@})";

/// A dashboard.
pub(crate) struct Dashboard {
    /// The name of its file, and its address in Grafana.
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// How far back it looks at first.
    pub(crate) from: &'static str,
    /// Variables besides the data source, the job and the instance.
    pub(crate) variables: Vec<Value>,
    pub(crate) panels: Vec<Panel>,
}

/// A panel, or the heading of those that follow.
pub(crate) struct Panel {
    kind: &'static str,
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    size: (u32, u32),
    targets: Vec<Value>,
    extra: Vec<(&'static str, Value)>,
}

/// A heading.
pub(crate) fn heading(title: &'static str) -> Panel {
    Panel::new("row", title, "", "", (24, 1))
}

/// One number, or a few.
pub(crate) fn stat(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    Panel::new("stat", title, description, unit, (4, 4))
        .set("/options", json!({ "colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": true }))
        .set("/options/reduceOptions", json!({ "calcs": ["lastNotNull"], "fields": "", "values": false }))
        .set("/fieldConfig/defaults/color", json!({ "mode": "thresholds" }))
        .steps(&[])
}

/// Lines over time.
pub(crate) fn lines(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    Panel::new("timeseries", title, description, unit, (12, 8))
        .set("/options/legend", json!({ "calcs": ["lastNotNull"], "displayMode": "list", "placement": "bottom", "showLegend": true }))
        .set("/options/tooltip", json!({ "mode": "multi", "sort": "desc" }))
        .set("/fieldConfig/defaults/color", json!({ "mode": "palette-classic" }))
        .set("/fieldConfig/defaults/min", json!(0))
        .set(
            "/fieldConfig/defaults/custom",
            json!({ "drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false }),
        )
        .steps(&[])
}

/// Whole numbers over time, one on top of the other. A bar is five minutes at least.
pub(crate) fn bars(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    lines(title, unit, description)
        .set("/fieldConfig/defaults/custom", json!({ "drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "showPoints": "never" }))
        .set("/fieldConfig/defaults/custom/stacking", json!({ "group": "A", "mode": "normal" }))
        .set("/fieldConfig/defaults/decimals", json!(0))
        .set("/options/legend/calcs", json!([]))
        .set("/interval", json!("5m"))
}

/// Horizontal bars, one for each series.
pub(crate) fn gauges(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    stat(title, unit, description)
        .kind("bargauge")
        .size(8, 8)
        .set("/options", json!({ "displayMode": "basic", "orientation": "horizontal", "showUnfilled": true, "valueMode": "color" }))
        .set("/options/reduceOptions", json!({ "calcs": ["lastNotNull"], "fields": "", "values": false }))
        .set("/fieldConfig/defaults/min", json!(0))
}

/// Rows of labels and values.
pub(crate) fn table(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    Panel::new("table", title, description, unit, (8, 8))
        .set(
            "/options",
            json!({ "cellHeight": "sm", "showHeader": true }),
        )
        .set("/fieldConfig/defaults/custom", json!({ "align": "auto" }))
        .steps(&[])
}

/// Log records.
pub(crate) fn logs(title: &'static str, description: &'static str) -> Panel {
    Panel::new("logs", title, description, "", (10, 10)).set(
        "/options",
        json!({
            "dedupStrategy": "none", "enableLogDetails": true, "prettifyLogMessage": false, "showCommonLabels": false,
            "showLabels": false, "showTime": true, "sortOrder": "Descending", "wrapLogMessage": true,
        }),
    )
}

/// A variable whose values are those of a label.
pub(crate) fn label_variable(name: &str, label: &str, query: &str, all: &str) -> Value {
    json!({
        "type": "query", "name": name, "label": label, "datasource": prometheus(), "query": query,
        "refresh": 2, "sort": 3, "multi": true, "includeAll": true, "allValue": all, "regex": "", "hide": 0, "options": [], "skipUrlSync": false,
        "current": { "selected": true, "text": ["All"], "value": ["$__all"] },
    })
}

/// A variable that a person types.
pub(crate) fn text_variable(name: &str, label: &str, value: &str, description: &str) -> Value {
    let option = json!({ "selected": true, "text": value, "value": value });
    json!({
        "type": "textbox", "name": name, "label": label, "description": description, "query": value, "hide": 0, "skipUrlSync": false,
        "current": option, "options": [option],
    })
}

fn prometheus() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn loki() -> Value {
    json!({ "type": "loki", "uid": "${loki}" })
}

/// A query as Grafana runs it.
pub(crate) fn expression(query: &str) -> String {
    let words: Vec<&str> = query.split_whitespace().collect();
    words.join(" ").replace('@', SELECTION)
}

// === impl Panel ===

impl Panel {
    fn new(
        kind: &'static str,
        title: &'static str,
        description: &'static str,
        unit: &'static str,
        size: (u32, u32),
    ) -> Self {
        Self {
            kind,
            title,
            description,
            unit,
            size,
            targets: Vec::new(),
            extra: Vec::new(),
        }
    }

    fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn size(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }

    /// A query over time; `legend` names its series.
    pub(crate) fn query(self, query: &str, legend: &str) -> Self {
        self.target(query, legend, "time_series", false)
    }

    /// A query of the end of the time range alone.
    pub(crate) fn now(self, query: &str, legend: &str) -> Self {
        self.target(query, legend, "time_series", true)
    }

    /// The same, as rows.
    pub(crate) fn rows(self, query: &str) -> Self {
        self.target(query, "", "table", true)
    }

    fn target(mut self, query: &str, legend: &str, format: &str, instant: bool) -> Self {
        let id = char::from(b'A' + u8::try_from(self.targets.len()).expect("a few"));
        self.targets.push(json!({
            "refId": id.to_string(), "datasource": prometheus(), "expr": expression(query), "legendFormat": legend, "format": format,
            "instant": instant, "range": !instant, "editorMode": "code",
        }));
        self
    }

    /// A query of Loki.
    pub(crate) fn records(mut self, query: &str) -> Self {
        self.targets.push(json!({
            "refId": "A", "datasource": loki(), "expr": query, "queryType": "range", "maxLines": 500, "editorMode": "code",
        }));
        self
    }

    /// Sets something by its JSON pointer.
    pub(crate) fn set(mut self, pointer: &'static str, value: Value) -> Self {
        self.extra.push((pointer, value));
        self
    }

    /// Green, and from each value on its colour.
    pub(crate) fn steps(self, steps: &[(f64, &str)]) -> Self {
        let mut all = vec![json!({ "color": "green", "value": null })];
        all.extend(
            steps
                .iter()
                .map(|(value, color)| json!({ "color": color, "value": value })),
        );
        self.set(
            "/fieldConfig/defaults/thresholds",
            json!({ "mode": "absolute", "steps": all }),
        )
    }

    /// Words for values.
    pub(crate) fn words(self, words: &[(&str, &str, &str)]) -> Self {
        let options: Map<String, Value> = words
            .iter()
            .enumerate()
            .map(|(index, (value, text, color))| {
                (
                    (*value).to_owned(),
                    json!({ "text": text, "color": color, "index": index }),
                )
            })
            .collect();
        self.set(
            "/fieldConfig/defaults/mappings",
            json!([{ "type": "value", "options": options }]),
        )
    }

    /// What a panel without data says.
    pub(crate) fn absent(self, text: &str) -> Self {
        self.set("/fieldConfig/defaults/noValue", json!(text))
    }

    /// The columns of a table, as label and heading, in this order; no other one is shown.
    pub(crate) fn columns(self, columns: &[(&str, &str)]) -> Self {
        let names: Map<String, Value> = columns
            .iter()
            .map(|(label, heading)| ((*label).to_owned(), json!(heading)))
            .collect();
        let order: Map<String, Value> = columns
            .iter()
            .enumerate()
            .map(|(at, (label, _))| ((*label).to_owned(), json!(at)))
            .collect();
        let shown: Vec<&str> = columns.iter().map(|(label, _)| *label).collect();
        self.set(
            "/transformations",
            json!([
                { "id": "filterFieldsByName", "options": { "include": { "names": shown } } },
                { "id": "organize", "options": { "excludeByName": {}, "indexByName": order, "renameByName": names } },
            ]),
        )
    }

    fn json(self, id: usize, at: (u32, u32)) -> Value {
        let grid = json!({ "h": self.size.1, "w": self.size.0, "x": at.0, "y": at.1 });
        if self.kind == "row" {
            return json!({ "id": id, "type": "row", "title": self.title, "collapsed": false, "gridPos": grid, "panels": [] });
        }
        let is_loki = self.kind == "logs";
        let mut defaults = json!({ "mappings": [] });
        if !is_loki {
            defaults["unit"] = json!(self.unit);
        }
        let mut panel = json!({
            "id": id, "type": self.kind, "title": self.title, "description": self.description, "gridPos": grid,
            "datasource": if is_loki { loki() } else { prometheus() },
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "options": {}, "targets": self.targets,
        });
        for (pointer, value) in self.extra {
            put(&mut panel, pointer, value);
        }
        panel
    }
}

/// Sets what a JSON pointer names, and makes the way there.
fn put(mut place: &mut Value, pointer: &str, value: Value) {
    for key in pointer.split('/').skip(1) {
        place = &mut place[key];
    }
    *place = value;
}

// === impl Dashboard ===

impl Dashboard {
    /// The file as it is in the repository.
    pub(crate) fn text(self) -> String {
        let mut text = serde_json::to_string_pretty(&self.json()).expect("JSON");
        text.push('\n');
        text
    }

    fn json(self) -> Value {
        let mut variables = vec![
            json!({
                "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1, "regex": "", "hide": 0,
                "multi": false, "includeAll": false, "current": {}, "options": [], "skipUrlSync": false,
            }),
            label_variable("job", "Job", "label_values(orgdata_up, job)", ".+"),
            label_variable(
                "instance",
                "Instance",
                r#"label_values(orgdata_up{job=~"$job"}, instance)"#,
                ".+",
            ),
        ];
        variables.extend(self.variables);
        let (mut x, mut y, mut height) = (0, 0, 0);
        let mut panels = Vec::new();
        for (index, panel) in self.panels.into_iter().enumerate() {
            let (width, tall) = panel.size;
            if x + width > 24 {
                (x, y, height) = (0, y + height, 0);
            }
            panels.push(panel.json(index + 1, (x, y)));
            (x, height) = (x + width, height.max(tall));
        }
        json!({
            "uid": self.uid, "title": self.title, "description": self.description, "tags": [TAG], "schemaVersion": SCHEMA_VERSION,
            "editable": false, "timezone": "browser", "refresh": "1m", "graphTooltip": 1, "fiscalYearStartMonth": 0, "liveNow": false,
            "time": { "from": self.from, "to": "now" }, "timepicker": {}, "weekStart": "",
            "links": [{
                "type": "dashboards", "title": "orgdata-exporter", "tags": [TAG], "asDropdown": false, "includeVars": true, "keepTime": true,
                "targetBlank": false, "icon": "external link", "tooltip": "", "url": "",
            }],
            "templating": { "list": variables },
            "annotations": { "list": [] },
            "panels": panels,
        })
    }
}
