// Draws the spec's form from the kind's JSON Schema and keeps it in step with the raw text, which is what is sent.
// What shapes a form. Pure constraints beside a shape (such as "one of these is required") are left to the server, which
// checks everything: Jedison builds a whole editor for each alternative, and takes very long for nested ones.
const SMALL = 20000;  // characters
const CONSTRAINTS = [
  "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "propertyNames", "contains",
];

function formSchema(schema) {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return schema;
  const hasShape = "properties" in schema || "enum" in schema || "const" in schema
    || ("type" in schema && !Array.isArray(schema.type));
  const each = (map) => Object.fromEntries(Object.entries(map).map(([name, part]) => [name, formSchema(part)]));
  const kept = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (CONSTRAINTS.includes(keyword)) continue;
    if (["oneOf", "anyOf", "allOf"].includes(keyword)) {
      if (keyword === "allOf") kept.allOf = value.map(formSchema);
      else if (!hasShape) Object.assign(kept, alternatives(keyword, value.map(formSchema)));
    } else if (["properties", "patternProperties", "$defs", "definitions"].includes(keyword)) kept[keyword] = each(value);
    else if (["items", "additionalProperties"].includes(keyword)) kept[keyword] = formSchema(value);
    else if (keyword === "prefixItems") kept[keyword] = value.map(formSchema);
    else kept[keyword] = value;
  }
  return kept;
}

// Alternatives that are all objects become one object with the members of each. Beside a text or a number an object
// requires nothing: Jedison would set its required members on the text.
function alternatives(keyword, options) {
  if (!options.every((option) => option.type === "object" && option.properties)) {
    return { [keyword]: options.map(({ required, ...rest }) => rest) };
  }
  const needs = options.map((option) => option.required || []);
  const required = needs[0].filter((name) => needs.every((names) => names.includes(name)));
  return { type: "object", properties: Object.assign({}, ...options.map((option) => option.properties)), required };
}

// Whether everything in `before` is still in `after`: a form that drops what it cannot show must not be used.
function keeps(before, after) {
  if (typeof before !== "object" || before === null) return before === after;
  if (typeof after !== "object" || after === null || Array.isArray(before) !== Array.isArray(after)) return false;
  if (Array.isArray(before) && before.length !== after.length) return false;
  return Object.keys(before).every((name) => name in after && keeps(before[name], after[name]));
}

document.addEventListener("DOMContentLoaded", async () => {
  const raw = document.getElementById("id_spec");
  const source = document.getElementById("spec-schema");
  if (!raw || !source || !window.Jedison) return;

  const panels = { form: document.getElementById("panel-form"), raw: document.getElementById("panel-raw") };
  const tabs = { form: document.getElementById("tab-form"), raw: document.getElementById("tab-raw") };
  const note = document.querySelector(".as-raw-note");
  const problems = JSON.parse(document.getElementById("spec-problems").textContent);
  const schema = formSchema(JSON.parse(source.textContent));
  const references = new Jedison.RefParser({ fetch: undefined });  // the server refuses references to other documents
  await references.dereference(schema);
  let editor = null;

  // A message without a text says nothing; its mark alone would alarm.
  class Theme extends Jedison.Theme {
    getErrorFeedback(config) {
      const element = super.getErrorFeedback(config);
      element.hidden = !config.message;
      return element;
    }
  }

  const parsed = () => { try { return { value: JSON.parse(raw.value || "{}") }; } catch { return null; } };

  function show(name) {
    for (const key of ["form", "raw"]) {
      panels[key].hidden = key !== name;
      tabs[key].setAttribute("aria-selected", String(key === name));
      tabs[key].tabIndex = key === name ? 0 : -1;
    }
    note.hidden = true;
  }

  function place(pointer) {
    const path = "#" + pointer;
    return [...panels.form.querySelectorAll("[data-path]")].find((element) => element.dataset.path === path);
  }

  function showProblems() {
    for (const { pointer, message } of problems) {
      let at = pointer, found = place(at);
      while (!found && at) { at = at.slice(0, at.lastIndexOf("/")); found = place(at); }
      if (!found) continue;
      const line = document.createElement("p");
      line.className = "as-field-problem";
      line.textContent = message;
      found.append(line);
    }
  }

  function draw() {
    const read = parsed();
    if (!read || typeof read.value !== "object" || read.value === null || Array.isArray(read.value)) return false;
    if (editor) editor.destroy();
    panels.form.replaceChildren();
    const box = document.createElement("div");
    panels.form.append(box);
    editor = new Jedison.Create({
      container: box, theme: new Theme(), refParser: references, schema, data: read.value,
      enablePropertiesToggle: true, showErrors: "change", enforceAdditionalProperties: false, enforceRequired: true,
      deactivateNonRequired: true, arrayMove: true,
      // The member itself says what is wrong with it; its parents need not say it again.
      translations: { en: { errorProperties: "" } },
    });
    if (!keeps(read.value, editor.getValue())) return false;
    editor.on("change", () => { raw.value = JSON.stringify(editor.getValue(), null, 2); });
    showProblems();
    return true;
  }

  const open = (name) => {
    if (name === "raw") return show("raw");
    if (draw()) return show("form");
    note.textContent = note.dataset.broken;
    note.hidden = false;
    return undefined;
  };
  tabs.form.addEventListener("click", () => open("form"));
  tabs.raw.addEventListener("click", () => open("raw"));
  document.querySelector(".as-tabs").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = tabs.form.getAttribute("aria-selected") === "true" ? "raw" : "form";
    open(other);
    tabs[other].focus();
  });
  for (const link of document.querySelectorAll("#problems a[data-pointer]")) {
    link.addEventListener("click", (event) => {
      const found = place(link.dataset.pointer);
      if (panels.form.hidden || !found) return;
      event.preventDefault();
      found.scrollIntoView({ block: "center" });
      found.querySelector("input, select, textarea, button")?.focus();
    });
  }

  document.querySelector(".as-tabs").hidden = false;
  let drawn = false;
  // A large spec takes seconds to draw: whoever wants its form asks for it.
  try { drawn = raw.value.length < SMALL && draw(); } catch (error) { console.warn("The form cannot be drawn from this schema.", error.message); }
  show(drawn ? "form" : "raw");
});
