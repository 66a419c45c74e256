// Pages that keep themselves up to date while somebody looks: cells of a list, the page of a living job.
(() => {
  const PAUSE_MS = 3000;
  const isVisible = () => document.visibilityState === "visible";

  async function fetched(url, type) {
    try {
      const answer = await fetch(url, { headers: { Accept: type }, credentials: "same-origin" });
      return answer.ok && !answer.redirected ? answer : null;
    } catch {
      return null;  // the next turn asks again
    }
  }

  function list(said) {
    const rows = new Map();
    for (const link of document.querySelectorAll("#result_list tbody a[href*='/change/']")) {
      const id = link.getAttribute("href").match(/([0-9a-f-]{36})\/change\//);
      if (id) rows.set(id[1], link.closest("tr"));
    }
    if (!rows.size) return;
    const url = said.dataset.url + "?" + [...rows.keys()].map((id) => "id=" + id).join("&");
    const columns = ["field-state", "field-outcome", "field-took"];
    setInterval(async () => {
      if (!isVisible()) return;
      const answer = await fetched(url, "application/json");
      if (!answer) return;
      const { cells } = await answer.json();
      let changed = 0;
      for (const [id, row] of rows) {
        (cells[id] || []).forEach((html, index) => {
          const cell = row.querySelector("." + columns[index]);
          // The server escaped it: badges are its own markup.
          const fresh = new DOMParser().parseFromString(html, "text/html").body;
          if (!cell || cell.textContent.trim() === fresh.textContent.trim()) return;
          cell.replaceChildren(...fresh.childNodes);
          if (index === 0) changed += 1;
        });
      }
      if (changed) said.textContent = said.dataset.said.replace("%d", changed);
    }, PAUSE_MS);
  }

  function page(part) {
    const said = document.getElementById("live-said");
    const state = () => part.firstElementChild.dataset.state;
    const isLive = () => part.firstElementChild.dataset.live === "1";
    let last = part.innerHTML;
    const timer = setInterval(async () => {
      if (!isVisible()) return;
      const answer = await fetched(part.dataset.url, "text/html");
      if (!answer) return;
      const text = await answer.text();
      if (text !== last) {
        last = text;
        const before = state();
        const open = [...part.querySelectorAll("details[open][id]")].map((element) => element.id);
        const focused = document.activeElement && part.contains(document.activeElement)
          ? document.activeElement.getAttribute("href") || document.activeElement.dataset.copy : null;
        const fresh = new DOMParser().parseFromString(text, "text/html").body;
        part.replaceChildren(...fresh.childNodes);
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        if (focused) [...part.querySelectorAll("a, button")]
          .find((element) => (element.getAttribute("href") || element.dataset.copy) === focused)?.focus();
        window.htmx?.process(part);
        localTimes(part);
        if (state() !== before) said.textContent = state();
      }
      if (!isLive()) clearInterval(timer);
    }, PAUSE_MS);
    if (!isLive()) clearInterval(timer);
  }

  function localTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (!isNaN(moment)) time.title = moment.toLocaleString() + " (" + time.title + ")";
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const label = button.querySelector("span:last-child");
    const before = label.textContent;
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // no permission, or not a secure context: select it for the person's own key press
      window.getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      return;
    }
    label.textContent = button.dataset.done;
    setTimeout(() => { label.textContent = before; }, 2000);
  });

  document.addEventListener("DOMContentLoaded", () => {
    const said = document.getElementById("live-list");
    const part = document.getElementById("live-part");
    if (said) list(said);
    if (part) page(part);
    localTimes(document);
    // A dialog that the server refuses says so; htmx alone would stay silent.
    for (const name of ["htmx:responseError", "htmx:sendError"]) {
      document.body.addEventListener(name, () => {
        const refused = document.querySelector("#dialog .as-dialog-refused");
        if (refused) refused.hidden = false;
      });
    }
    document.body.addEventListener("htmx:afterSettle", () => {
      document.querySelector("#dialog .errors textarea, #dialog [autofocus]")?.focus();
    });
    document.getElementById("problems")?.focus();
    document.querySelector("select#kind")?.addEventListener("change", (event) => event.target.form.requestSubmit());
  });
})();
