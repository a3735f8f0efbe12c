// Gives the options of every panel to Grafana's own library, without data and with invented data, and looks at what it would show: texts,
// colours, empty cells. dashboards/README.md says how to run it; it is no part of `cargo test`, because it needs Node.js and npm.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.cwd(), "node_modules", "x.js"));
const { JSDOM } = require("jsdom");
const dom = new JSDOM("", { url: "http://localhost/" });
for (const name of Object.getOwnPropertyNames(dom.window)) {
  if (!(name in globalThis)) globalThis[name] = dom.window[name];
}
Object.assign(globalThis, { window: dom.window, document: dom.window.document, grafanaBootData: { settings: {} } });
dom.window.grafanaBootData = globalThis.grafanaBootData;
const grafana = require("@grafana/data");
const theme = grafana.createTheme();
const replaceVariables = (text) => text;

// Grafana 12 loads a transformer by a function, older ones have it at once.
grafana.standardTransformersRegistry.setInit(() => {
  const byId = new Map(Object.values(grafana.standardTransformers).map((one) => [one.id, one]));
  return [...byId.values()].map((one) => ({
    id: one.id,
    name: one.name,
    description: "",
    transformation: Object.defineProperties(() => Promise.resolve(one), Object.getOwnPropertyDescriptors(one)),
  }));
});
const settings = "unit noValue color mappings thresholds min max decimals displayName".split(" ");
const option = (path, id) => ({ id, path, name: id, process: (value) => value, shouldApply: () => true, override: {}, editor: {} });
const registry = new grafana.Registry(() => settings.map((name) => option(name, name)));

const GREY = "#8e8e8e";
const SAMPLES = {
  activity: "TASK_COMPLETED TASK_CREATED TASK_UPDATED DEAL_UPDATED REQUIREMENT_STATUS_CHANGED DOCUMENT_VIEWED REQUIREMENT_ADDED MEETING_SCHEDULED DEAL_STAGE_CHANGED MEETING_COMPLETED INTEGRATION_SYNCED SOMETHING_ELSE".split(" "),
  state: ["CLOSED", "IN_PROGRESS", "OPEN", "REJECTED", "ANOTHER"],
  ticket_type: ["BUG", "FEATURE_REQUEST", "QUESTION", "ANOTHER"],
  priority: ["ANOTHER"],
};

// The series of a panel as the Prometheus data source returns them.
function series(panel) {
  const frames = [];
  for (const target of panel.targets) {
    const label = /{{(\w+)}}/.exec(target.legendFormat)?.[1];
    for (const value of label ? (SAMPLES[label] ?? ["a", "b"]) : [""]) {
      const legend = target.legendFormat.replace(/{{\w+}}/g, value);
      const times = target.instant ? [5] : [1, 2, 3, 4];
      const values = times.map((time) => time % 2);
      frames.push(grafana.toDataFrame({
        refId: target.refId,
        fields: [
          { name: "Time", type: "time", values: times },
          { name: "Value", type: "number", labels: {}, config: { displayNameFromDS: legend }, values },
        ],
      }));
    }
  }
  return frames;
}

// The rows of a table: one with all labels, one with none.
function rows(panel) {
  const names = panel.transformations.flatMap((step) => step.options.include?.names ?? []);
  const of = (name) => (name.startsWith("Value") ? { name, type: "number", values: [1, 2] } : { name, type: "string", values: ["x", ""] });
  return [grafana.toDataFrame({ refId: "A", fields: [{ name: "Time", type: "time", values: [1, 1] }, ...names.map(of)] })];
}

async function shown(panel, frames) {
  const steps = panel.transformations ?? [];
  const data = await new Promise((resolve, reject) => grafana.transformDataFrame(steps, frames).subscribe({ next: resolve, error: reject }));
  return grafana.applyFieldOverrides({ data, fieldConfig: panel.fieldConfig, replaceVariables, theme, fieldConfigRegistry: registry });
}

const values = (panel, data) =>
  grafana.getFieldDisplayValues({
    data, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables, sparkline: true, theme, timeZone: "utc",
  });

// Returns what is wrong with a panel.
async function faults(panel) {
  const found = [];
  const check = (isRight, what) => isRight || found.push(what);
  const { noValue } = panel.fieldConfig.defaults;
  const empty = await shown(panel, []);
  const full = await shown(panel, panel.type === "table" ? rows(panel) : series(panel));
  if (panel.type === "stat") {
    const [none] = values(panel, empty);
    check(none.display.text === noValue && none.display.color === GREY, `without data: ${none.display.text} in ${none.display.color}`);
    const present = values(panel, full);
    check(present.length > 0 && present.every((one) => one.display.text !== noValue), "no value from data");
    if (panel.options.graphMode === "area") {
      check(present.length === 1 && present[0].sparkline?.y.values.length === 5, "the sparkline is not one series with the present value");
      const gone = series(panel);
      gone[1].fields[1].values = [NaN];
      const [last] = values(panel, await shown(panel, gone));
      check(last.display.text === noValue && last.display.color === GREY, `a value that is gone: ${last.display.text}`);
    }
  }
  if (panel.type === "timeseries") {
    const hidden = (field) => field.config.custom?.hideFrom?.legend;
    const isZero = (frame) => panel.targets.some((target) => target.refId === frame.refId && target.legendFormat === "zero");
    const fields = full.filter((frame) => !isZero(frame)).flatMap((frame) => frame.fields.filter((field) => field.type === "number" && !hidden(field)));
    const colours = fields.map((field) => grafana.getFieldSeriesColor(field, theme).color);
    const isOne = panel.fieldConfig.defaults.color.mode === "fixed";
    check(isOne || new Set(colours).size === colours.length, `two series have one colour: ${colours}`);
  }
  if (panel.type === "state-timeline") {
    check(panel.fieldConfig.defaults.color.mode !== "thresholds", "the legend shows thresholds");
    for (const field of full.flatMap((frame) => frame.fields.filter((one) => one.type === "number"))) {
      const states = [0, 1].map((value) => field.display(value));
      check(new Set(states.map((one) => one.color)).size === 2 && states.every((one) => isNaN(one.text)), "states without a text or a colour");
    }
  }
  if (panel.type === "table") {
    for (const field of full[0].fields.filter((one) => one.type === "string")) {
      check(field.display("").text !== noValue, `${field.name} shows "${noValue}" in an empty cell`);
    }
  }
  return found;
}

let count = 0;
let isRight = true;
for (const file of process.argv.slice(2)) {
  const dashboard = JSON.parse(readFileSync(file, "utf8"));
  for (const panel of dashboard.panels.flatMap((one) => [one, ...(one.panels ?? [])])) {
    if (["row", "text", "logs"].includes(panel.type)) continue;
    count += 1;
    for (const fault of await faults(panel)) {
      isRight = false;
      console.log(`${file}: ${panel.title}: ${fault}`);
    }
  }
}
console.log(`@grafana/data ${require("@grafana/data/package.json").version}: ${count} panels`);
process.exit(isRight && count > 0 ? 0 : 1);
