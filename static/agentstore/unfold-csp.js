// unfold's templates hold JavaScript expressions; Alpine's CSP build evaluates them without eval, and sees only what
// the page's data offers. This gives it the few globals that those templates name. Bound to django-unfold 0.91.
document.addEventListener("alpine:init", () => {
  const plain = () => ({
    localStorage: {
      getItem: (key) => window.localStorage.getItem(key),
      setItem: (key, value) => window.localStorage.setItem(key, value),
    },
    window: { location: { pathname: window.location.pathname, search: window.location.search } },
    getCurrentTab: () => getCurrentTab(),
    sortRecords: (event) => sortRecords(event),
    moveRecords: (event) => moveRecords(event),
  });
  const unfoldTheme = theme, form = searchForm, dropdown = searchDropdown, command = searchCommand;
  Alpine.data("theme", (chosen) =>
    Object.defineProperties(plain(), Object.getOwnPropertyDescriptors(unfoldTheme(chosen))));
  Alpine.data("searchForm", () => form());
  Alpine.data("searchDropdown", () => dropdown());
  Alpine.data("searchCommand", () => command());
  const init = document.body.getAttribute("x-init") || "";
  const tab = init.match(/activeTab\s*=\s*([^;]*);/);
  if (tab) document.body.setAttribute("x-init", "activeTab = " + tab[1].trim());
});
